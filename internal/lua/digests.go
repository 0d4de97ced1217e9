package lua

// digests has the SHA-1 of each script, by which Redis calls it. The library computes none, since
// GODEBUG=fips140=only makes that a panic. After a change of a script, "go test
// ./internal/lua -update" writes them anew.
var digests = map[string]string{
	"acquire.lua":           "6194fca0758447a84e78a8750c06a212d1960d86",
	"extend.lua":            "dd5fce18189bd5732382cee1565b7f174cbf6785",
	"inspect.lua":           "0ac37da45d438e162901049bf075ed2e398d69fd",
	"legacy_acquire.lua":    "a456618dc75d3be62127a1833019cc77a1b752f4",
	"legacy_extend.lua":     "2af38e3a8d8a493997ffb847821f2532e21dd32b",
	"legacy_inspect.lua":    "9609fa6829aedbfacbaef1617740c2d0ec734b05",
	"legacy_release.lua":    "cddc7d491a51ebab1f2d4f6efea460e0c3245605",
	"quorum_acquire.lua":    "d5e50e56462f5551513cf90280a08df3c72e40ba",
	"quorum_extend.lua":     "6e1ecbbdb37c0d3010ff56f155e1cd41fc6f83f4",
	"quorum_release.lua":    "a6a721f65e6db16523b0f8a7aa11788322b881ec",
	"release.lua":           "ba06f19d4e39892def1a4aac31a0638f1a5b26fb",
	"semaphore_acquire.lua": "1e4860084ddca1e1be02aba02ba5b3e1b9438ef4",
	"semaphore_extend.lua":  "487eed5160b6cda8fcba624a938e91340b8d16be",
	"semaphore_inspect.lua": "b9bdab254801596baa6482e7515a5b289d9d9e91",
	"semaphore_release.lua": "dd3c18538d088c65b86c127bcdb6921b50e50e1b",
}
