package lua

// digests has the SHA-1 of each script, by which Redis calls it. The library computes none, since
// GODEBUG=fips140=only makes that a panic. After a change of a script, "go test
// ./internal/lua -update" writes them anew.
var digests = map[string]string{
	"acquire.lua":           "696cf8dbc4eeb9cba4fba4584c1ccd98df9b3946",
	"extend.lua":            "a8e56bcc27a0174b50efd454300efe2b5cce7e51",
	"inspect.lua":           "2bca0512f2b8f372f9a610d874d25f1fd33b53ee",
	"legacy_acquire.lua":    "a456618dc75d3be62127a1833019cc77a1b752f4",
	"legacy_extend.lua":     "7550845d70eafaff69579803c7daa9ae86c7f3ec",
	"legacy_inspect.lua":    "9609fa6829aedbfacbaef1617740c2d0ec734b05",
	"legacy_release.lua":    "cddc7d491a51ebab1f2d4f6efea460e0c3245605",
	"quorum_acquire.lua":    "d5e50e56462f5551513cf90280a08df3c72e40ba",
	"quorum_extend.lua":     "6e1ecbbdb37c0d3010ff56f155e1cd41fc6f83f4",
	"quorum_release.lua":    "05ed53b7281f7c2cd9b6aea021fadd15b3a9e04a",
	"release.lua":           "b8883003b05315c42acfea2d727a33eb050ece4a",
	"semaphore_acquire.lua": "7f482266875fa41b9743cf1b3c6a13de3962fe13",
	"semaphore_extend.lua":  "52c671218aeabc3a46cef3e9b098e332a8314f6c",
	"semaphore_inspect.lua": "f3253a64317c82c28595ba1ece8962f8a1d14847",
	"semaphore_release.lua": "ec189916e7b90a628ca48e4d6002b1351bdd90fa",
}
