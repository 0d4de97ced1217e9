package main

// clients are mistakes about kinds of clients.
var clients = []mutant{
	{
		name: "a cluster behind another type taken for one server", rule: "Hand-off", file: "clients.go", in: "internal/system",
		old: `return client.Watch(context.Background(), func(*redis.Tx) error { return nil }) != nil`,
		new: `_, cluster := client.(*redis.ClusterClient)
	_ = context.Background
	return cluster`,
		tests: "TestClusterBehindAnotherType",
	},
}
