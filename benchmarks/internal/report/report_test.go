package report

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample returns a report with every section, group and case that charts and the summary name,
// where one peer has no figures at all.
func sample() *Report {
	r := &Report{
		Date: "2030-01-02", Rounds: 3, Duration: "500ms",
		Machine:  Machine{CPU: "a CPU", Cores: 2, OS: "linux", Arch: "amd64", Wake: "5µs"},
		Versions: []Version{{"Go", "1.26"}, {"Redis", "7.0.15"}},
	}
	type place struct{ group, name, metric string }
	bySection := map[string][]place{}
	var order []string
	add := func(section string, p place) {
		if bySection[section] == nil {
			order = append(order, section)
		}
		bySection[section] = append(bySection[section], p)
	}
	for _, h := range highlights {
		add(h.section, place{h.group, h.name, h.metric})
	}
	for _, c := range charts {
		for _, p := range c.panels {
			for _, m := range c.marks {
				add(c.section, place{p.group, p.name, m.key})
			}
		}
	}
	for _, section := range order {
		t := Table{Section: section, Title: "Title of " + section, About: "About it."}
		for _, p := range bySection[section] {
			if _, ok := t.metric(p.metric); !ok {
				t.Metrics = append(t.Metrics, Metric{p.metric, "title of " + p.metric, Seconds})
			}
			for i, peer := range append([]string{"rueidislock"}, columns[:3]...) {
				if i > 0 { // rueidislock has none
					row(&t, p.group, p.name, peer).Add(Sample{p.metric: float64(i) / 1000})
				} else {
					row(&t, p.group, p.name, peer)
				}
			}
		}
		r.Tables = append(r.Tables, t)
	}
	return r
}

// row returns the row of t for that peer and case. It adds the row if there is none.
func row(t *Table, group, name, peer string) *Row {
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Group == group && r.Case == name && r.Peer == peer {
			return r
		}
	}
	t.Rows = append(t.Rows, Row{Group: group, Case: name, Peer: peer})
	return &t.Rows[len(t.Rows)-1]
}

func TestFigureIsTheMedianOfTheRoundsThatGaveOne(t *testing.T) {
	var row Row
	row.Add(Sample{"a": 3, "b": math.NaN(), "c": math.Inf(1)})
	row.Add(Sample{"a": 1})
	row.Add(Sample{"a": 2, "b": 7})
	require.Equal(t, map[string]Figure{
		"a": {Median: 2, Rounds: []float64{3, 1, 2}},
		"b": {Median: 7, Rounds: []float64{7}},
	}, row.Figures)
	_, err := json.Marshal(row)
	require.NoError(t, err)
}

func TestFiguresReadWithThreeDigitsThatCount(t *testing.T) {
	for want, figure := range map[string]struct {
		unit  Unit
		value float64
	}{
		"0":        {Seconds, 0},
		"58.1 µs":  {Seconds, 58.12e-6},
		"1.00 ms":  {Seconds, 0.9999e-3},
		"999 µs":   {Seconds, 0.9994e-3},
		"12.3 ms":  {Seconds, 0.012345},
		"1.36 s":   {Seconds, 1.3579},
		"156,000":  {Rate, 156_499},
		"12,900":   {Rate, 12_932},
		"1,000":    {Rate, 999.7},
		"100":      {Rate, 99.97},
		"8":        {Count, 8},
		"4.02":     {Count, 4.018},
		"0.125":    {Count, 0.125},
		"1.00":     {Index, 0.9999},
		"0.312":    {Cores, 0.3119},
		"62.6 %":   {Share, 0.62598},
		"100 %":    {Share, 1},
		"2,410 B":  {Bytes, 2_412},
		"11.7 KiB": {Bytes, 12_000},
		"−12.5 B":  {Bytes, -12.5},
	} {
		require.Equal(t, want, figure.unit.format(figure.value))
	}
}

func TestTableNamesACaseOnceAndShowsADashForWhatIsMissing(t *testing.T) {
	table := Table{Metrics: []Metric{{"rate", "pairs/s", Rate}, {"p50", "median", Seconds}}}
	for _, row := range []Row{{Case: "1|2", Peer: "a"}, {Case: "1|2", Peer: "b"}, {Group: "other", Case: "1", Peer: "a"}, {Case: "3", Peer: "a"}} {
		row.Add(Sample{"rate": 2000})
		if row.Peer == "b" {
			row.Add(Sample{"p50": 0.001})
		}
		table.Rows = append(table.Rows, row)
	}
	require.Equal(t, `|  |  | pairs/s | median |
| --- | --- | ---: | ---: |
| 1\|2 | a | 2,000 | – |
|  | b | 2,000 | 1 ms |
| 3 | a | 2,000 | – |
`, table.markdown(""))
	require.Equal(t, `|  |  | pairs/s |
| --- | --- | ---: |
| 1 | a | 2,000 |
`, table.markdown("other"), "a figure that no row of the group has")
}

func TestPrintHasALineForEachRowWithWhatWasMeasured(t *testing.T) {
	r := &Report{Tables: []Table{
		{Section: "hotkey", Metrics: []Metric{{"rate", "grants/s", Rate}, {"p50", "median", Seconds}}},
		{Section: "renewal", Metrics: []Metric{{"heap", "heap", Bytes}}},
	}}
	for i, row := range []Row{{Group: "No hold", Case: "4×64", Peer: "redlatch"}, {Case: "10,000 locks", Peer: "redlatch"}} {
		row.Add(Sample{"rate": 4999.5, "heap": 895})
		r.Tables[i].Rows = []Row{row}
	}
	var printed strings.Builder
	r.Print(&printed)
	require.Equal(t, "hotkey: No hold, 4x64, redlatch: rate=4999.5\nrenewal: 10,000 locks, redlatch: heap=895\n", printed.String())
}

func TestReportIsWrittenWithEveryChartAndReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	r := sample()
	require.NoError(t, r.Write(dir))
	read, err := Read(filepath.Join(dir, "results.json"))
	require.NoError(t, err)
	require.Equal(t, r, read)
	text, err := os.ReadFile(filepath.Join(dir, "results.md"))
	require.NoError(t, err)
	for _, file := range ChartFiles() {
		require.Contains(t, string(text), "]("+file+")")
		require.FileExists(t, filepath.Join(dir, file))
	}
}

func TestSummaryReplacesWhatStandsBetweenTheMarksAndNothingElse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "README.md")
	text := "# Title\n\n" + beginMark + "\nold\n" + endMark + "\n\nThe end\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	r := sample()
	require.NoError(t, r.Embed(file))
	once, err := os.ReadFile(file)
	require.NoError(t, err)
	summary, err := r.Summary()
	require.NoError(t, err)
	require.Equal(t, "# Title\n\n"+beginMark+"\n"+summary+r.pictures()+endMark+"\n\nThe end\n", string(once))
	require.Contains(t, string(once), "](results/hotkey-served.svg)")
	require.Contains(t, string(once), "](results/distance.svg)")
	require.Equal(t, 2+len(highlights), strings.Count(summary, "\n|")+1)
	require.Contains(t, summary, "| 1 ms | 2 ms | 3 ms | – |")
	require.Contains(t, summary, "2 cores, a CPU, linux/amd64, 5µs to wake a thread. Go 1.26, Redis 7.0.15.")

	require.NoError(t, r.Embed(file))
	twice, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(once), string(twice))
}

func TestSummaryIsRefusedRatherThanPutInTheWrongPlace(t *testing.T) {
	for _, text := range []string{"", beginMark, endMark + beginMark, beginMark + beginMark + endMark} {
		file := filepath.Join(t.TempDir(), "README.md")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		require.Error(t, sample().Embed(file))
		kept, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, text, string(kept))
	}
}

func TestSummaryHasTheSectionsThatWereRunAndNoneIsAnError(t *testing.T) {
	r := sample()
	r.Tables = r.Tables[:1]
	summary, err := r.Summary()
	require.NoError(t, err)
	require.Contains(t, summary, highlights[0].title)
	require.NotContains(t, summary, highlights[len(highlights)-1].title)
	r.Tables = nil
	_, err = r.Summary()
	require.Error(t, err)
}

func TestMachineIsDescribedByItsModelAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpuinfo")
	require.NoError(t, os.WriteFile(file, []byte("processor\t: 0\nmodel name\t: Some  CPU @ 2GHz\n"), 0o644))
	require.Equal(t, "Some CPU @ 2GHz", cpuModel(file))
	require.Equal(t, "unknown CPU", cpuModel(file+"x"))
}
