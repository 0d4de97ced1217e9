package redlatch

// digests has the SHA-1 of each script, by which Redis calls it. The library computes none, since GODEBUG=fips140=only makes that a
// panic. After a change of a script, "go test -run Digests -update ." writes them anew.
var digests = map[string]string{
	"acquire.lua":           "0ac6540c51fc375d3a99c13d8620d7560e0dcf9d",
	"extend.lua":            "2c541fdeb33825c7f347c3897eb6c4400885b7ce",
	"inspect.lua":           "9f57d419d030eaed742a52275b8595de5867f2d6",
	"legacy_acquire.lua":    "307a896a466427cfb0979176aab27074be90cdc5",
	"legacy_extend.lua":     "c1cd718f1af489302d8a8c7198875c43c1819c81",
	"legacy_inspect.lua":    "beaf4db24bf904669ddc665885c14165fcdf516f",
	"legacy_release.lua":    "cf30892541ed3d55a465895c9e8f80b03fb7e732",
	"quorum_acquire.lua":    "9e06d00ad1b1b4214523f832d8a9cec92cf47157",
	"quorum_extend.lua":     "1792fb8302486de078a4a19830b7909375719c5e",
	"quorum_release.lua":    "e0cc74c6cfb65e63827f02a5e5f489adf9f7b87c",
	"release.lua":           "b8883003b05315c42acfea2d727a33eb050ece4a",
	"semaphore_acquire.lua": "69da964254ad45a114dde5a4daf2bffdbebea0a9",
	"semaphore_extend.lua":  "7514456430f9231ca25d4011aa0e4ee45ac5f967",
	"semaphore_inspect.lua": "cec928ea0cc7df79a98778d0eb057db8fcbc215a",
	"semaphore_release.lua": "8df074ceccb3a49375c41123aab6dd3e31ff1b0f",
}
