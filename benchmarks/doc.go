// Package benchmarks is a module of its own that compares redlatch with its peers, so that nobody
// who uses redlatch depends on them. Command compare measures; the tests here show which peers
// exclude redlatch on a key, and are excluded by it.
package benchmarks
