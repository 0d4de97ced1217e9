package road

import (
	"bytes"
	"strconv"
)

// commands finds the whole commands at the beginning of what a client has written: how many bytes
// they have, together and each, and whether one of them is SUBSCRIBE.
func commands(b []byte) (whole int, lengths []int, subscribes bool) {
	for {
		n, subscribe := command(b[whole:])
		if n == 0 {
			return whole, lengths, subscribes
		}
		whole += n
		lengths = append(lengths, n)
		subscribes = subscribes || subscribe
	}
}

// command returns how many bytes the first command has; 0: it is not whole. It is an array of
// strings.
func command(b []byte) (length int, subscribes bool) {
	words, at := number(b, 0)
	for i := range words {
		var n int
		if n, at = number(b, at); at == 0 || at+n+2 > len(b) {
			return 0, false
		}
		if i == 0 {
			subscribes = bytes.EqualFold(b[at:at+n], []byte("subscribe"))
		}
		at += n + 2
	}
	return at, subscribes
}

// number reads the number in the line that begins at from, behind its first byte, and returns where
// the next line begins; 0: the line is not whole.
func number(b []byte, from int) (n, next int) {
	length := bytes.IndexByte(b[min(from, len(b)):], '\n')
	if length < 2 {
		return 0, 0
	}
	n, err := strconv.Atoi(string(b[from+1 : from+length-1]))
	if err != nil {
		panic("road: a client has written " + strconv.Quote(string(b)))
	}
	return n, from + length + 1
}
