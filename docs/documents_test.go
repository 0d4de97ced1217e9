package docs_test

import (
	"encoding/xml"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// TestMain runs the tests in the root, which the paths in them begin at.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// trimmed returns text without the indentation of its lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}

func mustRead(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// TestDocumentedCodeIsCompiled: each block of Go code in a document is part of an example, apart
// from its indentation. So it compiles and runs.
func TestDocumentedCodeIsCompiled(t *testing.T) {
	names, err := filepath.Glob("example*_test.go")
	require.NoError(t, err)
	var source strings.Builder
	names = append(names, "examples/first/main.go", "redlatchtest/example_test.go", "otel/example_test.go", "otel/prometheus/example_test.go", "gocron/example_test.go", "clients/rueidis/example_test.go", "clients/valkeygo/example_test.go")
	for _, name := range names {
		source.WriteString(trimmed(mustRead(t, name)))
	}
	for _, document := range []string{
		"README.md", "docs/metrics.md", "docs/migrating.md", "docs/operations.md", "docs/recipes.md", "docs/testing.md",
		"clients/rueidis/README.md", "clients/valkeygo/README.md", "gocron/README.md", "otel/README.md",
	} {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(mustRead(t, document), -1)
		require.NotEmpty(t, blocks)
		for _, block := range blocks {
			require.True(t, strings.Contains(source.String(), trimmed(block[1])), "%s: no example has this code:\n%s", document, block[1])
		}
	}
}

// TestFirstProgramRuns: the first program of the README is complete. It runs unchanged, except for
// the address of the server, and without a server it prints what the README says.
func TestFirstProgramRuns(t *testing.T) {
	t.Parallel()
	const file, addr = "examples/first/main.go", "localhost:6379"
	_, program, found := strings.Cut(mustRead(t, "README.md"), "```go\npackage main")
	require.True(t, found)
	program, rest, _ := strings.Cut("package main"+program, "```")
	require.True(t, strings.HasSuffix(mustRead(t, file), program), file)
	require.Equal(t, 1, strings.Count(program, addr))

	server := miniredis.RunT(t)
	here := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(here, []byte(strings.Replace(program, addr, server.Addr(), 1)), 0o600))
	built := filepath.Join(t.TempDir(), "first")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", built, here).CombinedOutput()
	require.NoError(t, err, "%s", output)
	run := func() string {
		output, err := exec.CommandContext(t.Context(), built).CombinedOutput()
		require.NoError(t, err, "%s", output)
		return string(output)
	}
	printed := run()
	for try := 1; try < 10 && strings.Contains(printed, "no reply within 1s"); try++ { // on a busy machine
		printed = run()
	}
	require.Equal(t, "only this process works on orders:42\n", printed)

	server.Close()
	outage := regexp.MustCompile("If Redis is not running[^`]*`([^`]*)`").FindStringSubmatch(rest)
	require.NotNil(t, outage)
	require.True(t, strings.Contains(run(), " "+outage[1]+": dial "), outage[1])
}

// TestCausesOfALossAreThoseOfErrors: the texts that docs/operations.md explains are those of errors.
func TestCausesOfALossAreThoseOfErrors(t *testing.T) {
	_, section, found := strings.Cut(mustRead(t, "docs/operations.md"), "\n## Locks are lost\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	source := mustRead(t, "internal/lease/errors.go") + mustRead(t, "scripts.go")
	rows := regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(section, -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		for _, text := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(row[1], -1) {
			require.True(t, strings.Contains(source, text[1]), text[1])
		}
	}
}

// TestComparisonsNameTheVersionsThatAreTested: docs/compare.md has them, and the README without the patch.
func TestComparisonsNameTheVersionsThatAreTested(t *testing.T) {
	tested := mustRead(t, "benchmarks/go.mod")
	for _, module := range []string{"github.com/go-redsync/redsync/v4", "github.com/bsm/redislock", "github.com/redis/rueidis"} {
		version := regexp.MustCompile(module + ` v((\d+\.\d+)\.\d+)`).FindStringSubmatch(tested)
		require.NotNil(t, version, module)
		require.True(t, strings.Contains(mustRead(t, "docs/compare.md"), " v"+version[1]+", "), version[0])
		require.True(t, strings.Contains(mustRead(t, "README.md"), ") "+version[2]+" |"), version[0])
	}
}

// ours begins the address of a page about a file of this repository. It is in two parts, so that it is no such address.
const ours = "https://github.com/redlatch/" + "redlatch"

// TestDocumentsLinkToWhatIsThere: a link into the repository leads to a file, a heading, or the test that its title names.
// So do the whole addresses in programs, rules and forms. An address in the reference names something exported.
func TestDocumentsLinkToWhatIsThere(t *testing.T) {
	exported := library{t, map[string]*documented{}}
	relative := regexp.MustCompile(`\]\(([^)\s]+)(?: "(Test\w+)[^"]*")?`)
	whole := regexp.MustCompile(regexp.QuoteMeta(ours) + "/[^\\s)\"'`<>]+")
	reference := regexp.MustCompile(`pkg\.go\.dev/github\.com/redlatch/redlatch([\w/]*)#([\w.]+)`)
	documents, links := 0, 0
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text := ""
		switch filepath.Ext(path) {
		case ".md":
			text = mustRead(t, path)
			documents++
			for _, link := range relative.FindAllStringSubmatch(text, -1) {
				if !strings.Contains(link[1], "://") {
					leads(t, path, filepath.Dir(path), link[1], link[2])
					links++
				}
			}
		case ".go", ".json", ".py", ".yml":
			text = mustRead(t, path)
		}
		for _, link := range whole.FindAllString(text, -1) {
			page := strings.TrimPrefix(strings.TrimRight(link, ".,:"), ours+"/")
			if file, is := strings.CutPrefix(page, "blob/main/"); is {
				leads(t, path, ".", file, "")
			} else if workflow, is := strings.CutPrefix(page, "actions/workflows/"); is {
				leads(t, path, ".github/workflows", strings.TrimSuffix(workflow, "/badge.svg"), "")
			}
		}
		for _, link := range reference.FindAllStringSubmatch(text, -1) {
			p := exported.load("." + link[1])
			require.NotNil(t, p, "%s: %s", path, link[0])
			require.True(t, p.names[strings.TrimRight(link[2], ".")], "%s: %s", path, link[0])
		}
		return nil
	}))
	require.Greater(t, documents, 25)
	require.Greater(t, links, 250)
}

// leads fails the test unless a link in a document leads to a file, and there to a place and a test, if it names these.
func leads(t *testing.T, document, from, link, test string) {
	t.Helper()
	file, place, _ := strings.Cut(link, "#")
	target := document
	if file != "" {
		target = filepath.Join(from, file)
		_, err := os.Stat(target)
		require.NoError(t, err, document)
	}
	if test != "" {
		require.True(t, strings.Contains(mustRead(t, target), "func "+test+"("), "%s names %s of %s", document, test, target)
	}
	if place != "" {
		require.Contains(t, places(mustRead(t, target)), place, "%s: %s", document, link)
	}
}

var (
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	linked  = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	dropped = regexp.MustCompile(`[^\pL\pN _-]`)
)

// places returns the names that GitHub gives to the headings of a document.
func places(text string) (names []string) {
	seen := map[string]int{}
	for _, found := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		name := linked.ReplaceAllString(found[1], "$1")
		name = strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(name), ""), " ", "-")
		if seen[name]++; seen[name] > 1 {
			name += "-" + strconv.Itoa(seen[name]-1)
		}
		names = append(names, name)
	}
	return names
}

// TestCommandsForContributorsExist: scripts, directories, flags and tests that a command of a document names. Those of
// users are played elsewhere: see the tests of cmd/redlatch, protocol and internal/field, and .ci/run.
func TestCommandsForContributorsExist(t *testing.T) {
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			tests.WriteString(mustRead(t, path))
		}
		return err
	}))
	scripts, programs, runs := 0, 0, 0
	for _, document := range []string{"CONTRIBUTING.md", "README.md", "benchmarks/README.md", ".github/RELEASE.md"} {
		for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(mustRead(t, document), -1) {
			for line := range strings.Lines(block[1]) {
				line, _, _ = strings.Cut(line, " # ")
				if script := regexp.MustCompile(`(?:^|\s)(\.ci/\w+)`).FindStringSubmatch(line); script != nil {
					info, err := os.Stat(script[1])
					require.NoError(t, err, line)
					require.NotZero(t, info.Mode()&0o111, line)
					scripts++
				}
				if program := regexp.MustCompile(`go (?:-C (\w+) )?run (\./\S+)(.*)`).FindStringSubmatch(line); program != nil {
					source := mustRead(t, filepath.Join(program[1], program[2], "main.go"))
					for _, name := range regexp.MustCompile(` -([a-z]+)`).FindAllStringSubmatch(program[3], -1) {
						require.Contains(t, source, `"`+name[1]+`", `, line)
					}
					programs++
				}
				if run := regexp.MustCompile(`go test .*-run (\w+)`).FindStringSubmatch(line); run != nil {
					require.Regexp(t, `\nfunc Test\w*`+run[1], tests.String(), line)
					runs++
				}
			}
		}
	}
	require.Positive(t, scripts)
	require.Positive(t, programs)
	require.Positive(t, runs)
}

// TestDocumentsNameRealTests: each test that a document names exists. docs/guarantees.md is for users and names no tests.
func TestDocumentsNameRealTests(t *testing.T) {
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			tests.WriteString(mustRead(t, path))
		}
		return err
	}))
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	named := 0
	for _, document := range append(documents, "README.md", "SECURITY.md", "CONTRIBUTING.md") {
		names := regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`).FindAllString(mustRead(t, document), -1)
		for _, name := range names {
			require.True(t, strings.Contains(tests.String(), "\nfunc "+name+"("), "%s names %s", document, name)
		}
		require.True(t, document != "docs/guarantees.md" || len(names) == 0, names)
		named += len(names)
	}
	require.Positive(t, named)
}

// TestPicturesAreShown: each picture is in a document, is well formed, and has colours for dark pages.
func TestPicturesAreShown(t *testing.T) {
	paths, err := filepath.Glob("docs/pictures/*.svg")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var shown strings.Builder
	for _, text := range guides(t) {
		shown.WriteString(text)
	}
	for _, path := range paths {
		picture := mustRead(t, path)
		require.NoError(t, xml.Unmarshal([]byte(picture), new(struct{})), path)
		require.Contains(t, picture, "@media (prefers-color-scheme: dark)", path)
		require.True(t, strings.Contains(shown.String(), "pictures/"+filepath.Base(path)+")"), path)
	}
}
