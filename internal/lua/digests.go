package lua

// digests has the SHA-1 of each script, by which Redis calls it. The library computes none, since
// GODEBUG=fips140=only makes that a panic. After a change of a script, "go test
// ./internal/lua -update" writes them anew.
var digests = map[string]string{
	"acquire.lua":           "895db86fca2392d959445a4feb863f2376956e4e",
	"extend.lua":            "dd5fce18189bd5732382cee1565b7f174cbf6785",
	"inspect.lua":           "0ac37da45d438e162901049bf075ed2e398d69fd",
	"legacy_acquire.lua":    "a456618dc75d3be62127a1833019cc77a1b752f4",
	"legacy_extend.lua":     "2af38e3a8d8a493997ffb847821f2532e21dd32b",
	"legacy_inspect.lua":    "9609fa6829aedbfacbaef1617740c2d0ec734b05",
	"legacy_release.lua":    "cddc7d491a51ebab1f2d4f6efea460e0c3245605",
	"quorum_acquire.lua":    "d5e50e56462f5551513cf90280a08df3c72e40ba",
	"quorum_extend.lua":     "6e1ecbbdb37c0d3010ff56f155e1cd41fc6f83f4",
	"quorum_release.lua":    "a6a721f65e6db16523b0f8a7aa11788322b881ec",
	"release.lua":           "9cc44e73d81b787439445875c830c070c63ab204",
	"semaphore_acquire.lua": "ad226c2959116777f446ef983e874fda6744f7df",
	"semaphore_extend.lua":  "9229e09db1cc4f84298d2868d54e3851df5a3073",
	"semaphore_inspect.lua": "2fdf0bc95ce7662ed777d3eab1c5a73ff31cbf89",
	"semaphore_release.lua": "8d1415c9b071cf05f74b9ff4eddcefaf74ea1077",
}
