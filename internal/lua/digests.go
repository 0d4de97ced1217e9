package lua

// digests has the SHA-1 of each script, by which Redis calls it. The library computes none, since
// GODEBUG=fips140=only makes that a panic. After a change of a script, "go test
// ./internal/lua -update" writes them anew.
var digests = map[string]string{
	"acquire.lua":           "4d93f61d23c02909ad552eb65fc019e8fcf76bbb",
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
	"semaphore_acquire.lua": "392ccef7425cb4bea195cd3ad35a5bb2b3c347f1",
	"semaphore_extend.lua":  "2ab649b4b6763c8a0a723d1cd480ca2cd1bb0a09",
	"semaphore_inspect.lua": "2fdf0bc95ce7662ed777d3eab1c5a73ff31cbf89",
	"semaphore_release.lua": "499abc5e134594fc420f48eb747eec8da85778cb",
}
