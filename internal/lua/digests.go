package lua

// digests has the SHA-1 of each script, by which Redis calls it. The library computes none, since
// GODEBUG=fips140=only makes that a panic. After a change of a script, "go test
// ./internal/lua -update" writes them anew.
var digests = map[string]string{
	"acquire.lua":           "4bcb3c76afe939780c7683ea0217d050f595f137",
	"extend.lua":            "371bcc8221a6cc4ab7fddf661aa0b7a8b35479a0",
	"inspect.lua":           "be2bb57a8e3a0418d85c1e031552810841a638fd",
	"legacy_acquire.lua":    "89d078fd118cd3ca7d8bb2406d32b6c345b301b5",
	"legacy_extend.lua":     "91b174b4bcef3f9d3add890b0c2548760a8be0fd",
	"legacy_inspect.lua":    "04228bed3d6caed014c73e34122623cbae6df03a",
	"legacy_release.lua":    "d88432ed87b0c2a02fc9a6c3f051c776f9df25b8",
	"quorum_acquire.lua":    "ebc378c1a6f6ed0cb83139672d44a6bfddad19c6",
	"quorum_extend.lua":     "7cc56ef81292f2062ce71b249b089becd51471a3",
	"quorum_release.lua":    "e4d6c4befcb2f98a7b0dbc0929ad5051b77170d9",
	"release.lua":           "18c3b6b1b6f7432aae429e1296f0a3d0eb7e150e",
	"semaphore_acquire.lua": "dcdb5a80a5519c83ab73c7c10bd0f656e5a4e72b",
	"semaphore_extend.lua":  "03c32c97a650552ee7be1205590e70d52a9582a1",
	"semaphore_inspect.lua": "623bda13de2979f76dc81d956249ea69ced25ea9",
	"semaphore_release.lua": "a71919475e2b16327d7b81f5669a46afd56ec583",
}
