package main

// clients are mistakes about kinds of clients.
var clients = []mutant{
	{
		name: "a cluster behind another type taken for one server", rule: "Hand-off", file: "keys.go",
		old:   `case client.Watch(context.Background(), func(*redis.Tx) error { return nil }) != nil:`,
		new:   `case reflect.TypeOf(client) == reflect.TypeFor[*redis.ClusterClient]() && context.Background() != nil:`,
		tests: "TestClusterBehindAnotherTypeIsACluster",
	},
	{
		name: "a ring behind another type taken for a cluster", rule: "Hand-off", file: "keys.go",
		old:   `if v.Type().Field(i).Anonymous && embeds(`,
		new:   `if !v.Type().Field(i).Anonymous && embeds(`,
		tests: "TestRingBehindAnotherType",
	},
}
