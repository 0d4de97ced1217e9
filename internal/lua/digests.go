package lua

// digests has the SHA-1 of each script, by which Redis calls it. The library computes none, since
// GODEBUG=fips140=only makes that a panic. After a change of a script, "go test
// ./internal/lua -update" writes them anew.
var digests = map[string]string{
	"acquire.lua":           "c1bd04bcff5e997ec35ea001756539cb3101d5ff",
	"extend.lua":            "371bcc8221a6cc4ab7fddf661aa0b7a8b35479a0",
	"inspect.lua":           "be2bb57a8e3a0418d85c1e031552810841a638fd",
	"legacy_acquire.lua":    "833b0c57d7f2308e1e4b22aa0697af4b73274145",
	"legacy_extend.lua":     "0045973257566b92597242e527bb5928df3da9d8",
	"legacy_inspect.lua":    "29a9856ee6c6bc7f980d9323a7fe48b59b9717e5",
	"legacy_release.lua":    "276134bb51b3cae614aee338bf664f3ff83efed9",
	"quorum_acquire.lua":    "ebc378c1a6f6ed0cb83139672d44a6bfddad19c6",
	"quorum_extend.lua":     "7cc56ef81292f2062ce71b249b089becd51471a3",
	"quorum_release.lua":    "e4d6c4befcb2f98a7b0dbc0929ad5051b77170d9",
	"release.lua":           "f3f823b3d76ebd868f0e9da96aeee64a216f9b31",
	"semaphore_acquire.lua": "0474e9f652979c1d2f5382cd7f4dd2322739122c",
	"semaphore_extend.lua":  "8a9e4953a39365f70c2206bf3a2d35970c2bdfb5",
	"semaphore_inspect.lua": "7ea36b5f100d8689439ea1439031d16a60e76cc8",
	"semaphore_release.lua": "6d927419c8643d89892ff61fc2d19b2970eb7268",
}
