package rediserr

import "strings"

// Prefix begins the text of every error of package redlatch.
const Prefix = "redlatch: "

var breaks = strings.NewReplacer("\r\n", " ", "\n", " ", ": "+Prefix, ": ")

// Text returns the text of err without Prefix, which stands once in a text, and without line breaks.
// A caller may make an error of package redlatch without an error in it.
func Text(err error) string {
	if err == nil {
		return "unknown error"
	}
	return breaks.Replace(strings.TrimPrefix(err.Error(), Prefix))
}
