package docs_test

import (
	"go/doc/comment"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wordsOf counts what has a letter or a digit: a bar of a table is no word.
func wordsOf(text string) int {
	count := 0
	for field := range strings.FieldsSeq(text) {
		if letters.MatchString(field) {
			count++
		}
	}
	return count
}

var letters = regexp.MustCompile(`[\pL\pN]`)

// guides returns the documents that users read, by name.
func guides(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	texts := map[string]string{}
	for _, name := range append(names, "README.md", "SECURITY.md", "CONTRIBUTING.md") {
		texts[name] = mustRead(t, name)
	}
	return texts
}

// TestReadmeIsShort: what needs more words has its own page.
func TestReadmeIsShort(t *testing.T) {
	require.LessOrEqual(t, wordsOf(mustRead(t, "README.md")), 1300)
}

// TestGuidesAreShort: a new page takes its words from pages that say the same.
func TestGuidesAreShort(t *testing.T) {
	total := 0
	for _, text := range guides(t) {
		total += wordsOf(text)
	}
	require.LessOrEqual(t, total, 26000)
}

// reference has the packages that users import, and the command.
var reference = []string{".", "./redlatchtest", "./otel", "./gocron", "./clients/rueidis", "./clients/valkeygo", "./cmd/redlatch"}

// TestNounsAreRepeated: "that of" and "those of" make a reader look back for the noun, so users read them three times at most.
func TestNounsAreRepeated(t *testing.T) {
	texts := guides(t)
	for _, pattern := range []string{"*.md", "*/README.md", "clients/*/README.md"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			texts[path] = mustRead(t, path)
		}
	}
	all := library{t, map[string]*documented{}}
	for _, dir := range reference {
		p := all.load(dir)
		require.NotNil(t, p, dir)
		for _, r := range p.remarks {
			texts[p.files.Position(r.text.Pos()).String()] = r.text.Text()
		}
	}
	backward := regexp.MustCompile(`(?i)\b(?:that|those)\s+of\b`)
	var found []string
	for name, text := range texts {
		for _, place := range backward.FindAllStringIndex(text, -1) {
			found = append(found, name+": "+strings.Join(strings.Fields(text[max(0, place[0]-40):min(len(text), place[1]+40)]), " "))
		}
	}
	require.LessOrEqual(t, len(found), 3, "%s", strings.Join(found, "\n"))
}

// TestSentencesOfTheReferenceAreShort: a sentence that needs more than 30 words is two.
func TestSentencesOfTheReferenceAreShort(t *testing.T) {
	all := library{t, map[string]*documented{}}
	end := regexp.MustCompile(`[.?!]\s+`)
	var long []string
	for _, dir := range reference {
		p := all.load(dir)
		require.NotNil(t, p, dir)
		for _, r := range p.remarks {
			for _, paragraph := range paragraphs(p.parser.Parse(r.text.Text()).Content) {
				for _, sentence := range end.Split(paragraph, -1) {
					if words := wordsOf(sentence); words > 30 {
						long = append(long, p.files.Position(r.text.Pos()).String()+": "+sentence)
					}
				}
			}
		}
	}
	require.Empty(t, long, strings.Join(long, "\n"))
}

// paragraphs returns the texts of blocks, without code.
func paragraphs(blocks []comment.Block) (texts []string) {
	for _, block := range blocks {
		switch block := block.(type) {
		case *comment.Paragraph:
			texts = append(texts, plain(block.Text))
		case *comment.List:
			for _, item := range block.Items {
				texts = append(texts, paragraphs(item.Content)...)
			}
		}
	}
	return texts
}

func plain(parts []comment.Text) string {
	var text strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case comment.Plain:
			text.WriteString(string(part))
		case comment.Italic:
			text.WriteString(string(part))
		case *comment.Link:
			text.WriteString(plain(part.Text))
		case *comment.DocLink:
			text.WriteString(plain(part.Text))
		}
	}
	return text.String()
}
