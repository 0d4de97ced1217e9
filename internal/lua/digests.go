package lua

// digests has the SHA-1 of each script, by which Redis calls it. The library computes none, since
// GODEBUG=fips140=only makes that a panic. After a change of a script, "go test
// ./internal/lua -update" writes them anew.
var digests = map[string]string{
	"acquire.lua":           "2170b9b8b3d5aea678b1bdb8cec81c2d881b3445",
	"extend.lua":            "371bcc8221a6cc4ab7fddf661aa0b7a8b35479a0",
	"inspect.lua":           "be2bb57a8e3a0418d85c1e031552810841a638fd",
	"legacy_acquire.lua":    "833b0c57d7f2308e1e4b22aa0697af4b73274145",
	"legacy_extend.lua":     "0045973257566b92597242e527bb5928df3da9d8",
	"legacy_inspect.lua":    "29a9856ee6c6bc7f980d9323a7fe48b59b9717e5",
	"legacy_release.lua":    "276134bb51b3cae614aee338bf664f3ff83efed9",
	"quorum_acquire.lua":    "ebc378c1a6f6ed0cb83139672d44a6bfddad19c6",
	"quorum_extend.lua":     "7cc56ef81292f2062ce71b249b089becd51471a3",
	"quorum_release.lua":    "e4d6c4befcb2f98a7b0dbc0929ad5051b77170d9",
	"release.lua":           "f8934f79695b2fd8caea68fba8a27e9235e489a2",
	"semaphore_acquire.lua": "1dc8ea1db382b119a0bc26acb80e7ff209b81ca6",
	"semaphore_extend.lua":  "b3104eaf40fa1e2d6018dcae0001bcc61de3b696",
	"semaphore_inspect.lua": "7ea36b5f100d8689439ea1439031d16a60e76cc8",
	"semaphore_release.lua": "cf98a126402496241b33e50c558cf017690c8735",
}
