package lua

// digests has the SHA-1 of each script, by which Redis calls it. The library computes none, since
// GODEBUG=fips140=only makes that a panic. After a change of a script, "go test
// ./internal/lua -update" writes them anew.
var digests = map[string]string{
	"acquire.lua":           "fbeac305b1ae2199880f4a00cd57fd39d2075e2a",
	"extend.lua":            "dd5fce18189bd5732382cee1565b7f174cbf6785",
	"inspect.lua":           "2bca0512f2b8f372f9a610d874d25f1fd33b53ee",
	"legacy_acquire.lua":    "a456618dc75d3be62127a1833019cc77a1b752f4",
	"legacy_extend.lua":     "2af38e3a8d8a493997ffb847821f2532e21dd32b",
	"legacy_inspect.lua":    "9609fa6829aedbfacbaef1617740c2d0ec734b05",
	"legacy_release.lua":    "cddc7d491a51ebab1f2d4f6efea460e0c3245605",
	"quorum_acquire.lua":    "d5e50e56462f5551513cf90280a08df3c72e40ba",
	"quorum_extend.lua":     "6e1ecbbdb37c0d3010ff56f155e1cd41fc6f83f4",
	"quorum_release.lua":    "a6a721f65e6db16523b0f8a7aa11788322b881ec",
	"release.lua":           "8eeddb528cb081ab87bb1f30c1a69c2f2e2bd671",
	"semaphore_acquire.lua": "8948274f7f615d0d175e173980f6586ccd55d029",
	"semaphore_extend.lua":  "487eed5160b6cda8fcba624a938e91340b8d16be",
	"semaphore_inspect.lua": "cecccfadc895aaea04bdaeed07e0c2b19dfa7355",
	"semaphore_release.lua": "33073b3550604f485d107534c4e00210eb29b6ef",
}
