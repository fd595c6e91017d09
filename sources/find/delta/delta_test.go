package delta_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/find"
	"millrace/sources/find/delta"
	"millrace/sources/format/parquet"
	"millrace/sources/values"
)

const bucket = "s3://bucket/"

// store is a store with the files below testdata.
type store struct{}

var (
	_ find.Tree  = store{}
	_ sources.FS = store{}
)

func local(url string) string { return filepath.Join("testdata", strings.TrimPrefix(url, bucket)) }

func (store) Walk(prefix string, fn func(url string) error) error {
	return filepath.WalkDir("testdata", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		url := bucket + strings.TrimPrefix(p, "testdata/")
		if !strings.HasPrefix(url, prefix) {
			return nil
		}
		return fn(url)
	})
}

func (store) Exists(url string) (bool, error) {
	st, err := os.Stat(local(url))
	return err == nil && !st.IsDir(), nil
}
func (store) Read(url string, _ int64) ([]byte, error)   { return os.ReadFile(local(url)) }
func (store) Open(url string) (sources.OpenFile, error)  { return sources.OSFS().Open(local(url)) }
func (store) Identity(url string) (identity.File, error) { return identity.OfPath(local(url)) }

// read returns the rows of a version of a table as JSON, sorted.
func read(t *testing.T, fs sources.FS, path string, version *uint64, columns []string) []string {
	t.Helper()
	tree, _ := fs.(find.Tree)
	spec := sources.Spec{Format: parquet.Format{}, Base: ".", Patterns: []string{path}, Version: version}
	found, err := find.Resolve(tree, spec.Query(fs))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var out []string
	for _, file := range found.Files {
		f, err := fs.Open(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := sources.Constants(file.Constants).Open(t.Context(), parquet.Format{}, f,
			sources.Field{Others: columns, MayLack: columns}, sources.Limits{}.Resolved(), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Scan(t.Context(), 0, func(r sources.Record) error {
			row := map[string]any{}
			for i, name := range columns {
				if row[name] = r.Others[i]; r.Err != nil {
					return r.Err
				}
				if n, ok := r.Others[i].(values.Number); ok {
					row[name] = string(n)
				}
			}
			b, err := json.Marshal(row)
			out = append(out, string(b))
			return err
		})
		if err := errors.Join(err, s.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(out)
	return out
}

// TestTables: the rows of each version are those of delta-rs, on this host and in a store.
func TestTables(t *testing.T) {
	b, err := os.ReadFile("testdata/tables.json")
	if err != nil {
		t.Fatal(err)
	}
	var tables map[string][]map[string]any
	if err := json.Unmarshal(b, &tables); err != nil {
		t.Fatal(err)
	}
	for of, rows := range tables {
		name, number, _ := strings.Cut(of, "@")
		version, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, row := range rows {
			b, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, string(b))
		}
		slices.Sort(want)
		columns := slices.Sorted(maps.Keys(rows[0]))
		_, hasNext := tables[fmt.Sprintf("%s@%d", name, version+1)]
		for _, v := range []*uint64{&version, nil} {
			if v == nil && hasNext {
				continue
			}
			if got := read(t, sources.OSFS(), "testdata/"+name, v, columns); !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", of, got, want)
			}
			if got := read(t, store{}, bucket+name, v, columns); !slices.Equal(got, want) {
				t.Errorf("%s of a store: got %v, want %v", of, got, want)
			}
		}
	}
}

// TestTablesAreRefused: a version whose files are gone, a pattern inside a table, a version that is not there.
func TestTablesAreRefused(t *testing.T) {
	for _, c := range []struct {
		path, format string
		version      uint64
		want         string
	}{
		{"vacuumed", "parquet", 0, "version 0 of the Delta table"},
		{"plain", "parquet", 9, "it has no version 9: its newest is 6"},
		{"checkpoints", "parquet", 12, "version 12 needs the commit 00000000000000000000.json, which is missing"},
		{"plain", "jsonl", 6, "write `format: parquet`"},
		{"plain/*.parquet", "parquet", 6, "name the directory of the table"},
		{"keys/lang=*/**/*.parquet", "parquet", 0, "name the directory of the table"},
	} {
		for _, at := range []struct {
			tree find.Tree
			base string
		}{{nil, "testdata/"}, {store{}, bucket}} {
			_, err := find.Resolve(at.tree, find.Query{Base: ".", Patterns: []string{at.base + c.path},
				Format: c.format, Version: &c.version})
			if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s%s: got %v, want %s", at.base, c.path, err, c.want)
			}
		}
	}
	_, err := find.Resolve(nil, find.Query{Base: ".", Patterns: []string{"testdata/tables.json"}, Format: "jsonl",
		Version: new(uint64)})
	if err == nil || !strings.Contains(err.Error(), "no path leads to the directory of a Delta table") {
		t.Errorf("got %v", err)
	}
}

// log is a log in memory. Its checkpoints are lines of JSON.
type log map[string]string

func (l log) Names() []string { return slices.Collect(maps.Keys(l)) }

func (l log) Read(name string) ([]byte, error) { return []byte(l[name]), nil }

func (l log) Rows(name string, columns []string, fn func([]any) error) error {
	for line := range strings.Lines(l[name]) {
		v, err := values.FromJSON([]byte(line))
		if _, ok := v.(values.Object); !ok || err != nil {
			return cmp.Or(err, errors.New("no row"))
		}
		row := make([]any, len(columns))
		for i, column := range columns {
			outer, inner, _ := strings.Cut(column, ".")
			in, _ := v.(values.Object).Get(outer)
			if in, ok := in.(values.Object); ok {
				row[i], _ = in.Get(inner)
			}
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return nil
}

const (
	basic = `{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}` + "\n"
	meta  = `{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",` +
		`\"fields\":[{\"name\":\"k\",\"type\":\"KIND\"}]}","partitionColumns":["k"],"configuration":{SETTINGS}}}` + "\n"
)

func metaOf(kind, settings string) string {
	return strings.NewReplacer("KIND", kind, "SETTINGS", settings).Replace(meta)
}

// TestTablesThatAreNotRead: each is refused with its cause and a cure.
func TestTablesThatAreNotRead(t *testing.T) {
	begin := basic + metaOf("string", "")
	add := func(path, more string) string {
		return fmt.Sprintf(`{"add":{"path":%q,"partitionValues":{"k":"1"}%s}}`, path, more)
	}
	newer := strings.Replace(begin, `Version":1`, `Version":4`, 1)
	named := metaOf("string", `"delta.columnMapping.mode":"name"`)
	for want, l := range map[string]log{
		"has deletion vectors, as that of a.parquet": {"0.json": begin +
			add("a.parquet", `,"deletionVector":{"storageType":"u","pathOrInlineDv":"ab","offset":1,"sizeInBytes":4}`)},
		"lies outside of the table, as those of a shallow clone": {"0.json": begin + add("s3://other/a.parquet", "")},
		"lists the file /a.parquet":                              {"0.json": begin + add("/a.parquet", "")},
		"lists the file x/..%2F../a.parquet, which lies outside": {"0.json": begin + add("x/..%2F../a.parquet", "")},
		"needs a reader of version 4":                            {"0.json": newer},
		"has columns with other names in its files":              {"0.json": basic + named},
		"has the feature typeWidening, which is not read": {"0.json": metaOf("string", "") +
			`{"protocol":{"minReaderVersion":3,"readerFeatures":["deletionVectors","typeWidening"]}}`},
		"its files are of the format orc":                      {"0.json": strings.Replace(begin, "parquet", "orc", 1)},
		"has no protocol or no schema":                         {"0.json": basic},
		"its JSON is damaged at byte":                          {"0.json": begin + `{"add":`},
		"version 2 needs the commit 00000000000000000001.json": {"0.json": begin, "2.json": ""},
		"it has no commit":                                     {"last": ""},
		"has a name of version 2, and such checkpoints are not read": {"5.json": begin,
			"4.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json": ""},
		"its rows lie in sidecar files": {"1.checkpoint.parquet": `{"sidecar":{"path":"a"}}`},
		`gives the column k of a.parquet a value that is not read: "1" is no binary`: {
			"0.json": basic + metaOf("binary", "") + add("a.parquet", "")},
		"version 3 needs the commit 00000000000000000000.json": {"3.json": begin, // a part is missing
			"2.checkpoint.0000000001.0000000002.parquet": begin},
	} {
		_, err := delta.Open(numbered(l), "/data/t", nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "/data/t") ||
			!errors.Is(err, millrace.ErrInvalid) && !errors.Is(err, millrace.ErrDamaged) {
			t.Errorf("%v: got %v, want %s", l, err, want)
		}
	}
	// features that no file uses
	l := log{"0.json": metaOf("string", `"delta.columnMapping.mode":"none"`) + add("a.parquet", "") +
		`{"protocol":{"minReaderVersion":3,"readerFeatures":["deletionVectors","columnMapping","timestampNtz"]}}`}
	if got, err := delta.Open(numbered(l), "t", nil); err != nil || len(got.Files) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// numbered returns a log whose names begin with numbers of twenty digits.
func numbered(l log) log {
	out := log{}
	for name, text := range l {
		number, rest, _ := strings.Cut(name, ".")
		if n, err := strconv.Atoi(number); err == nil {
			name = fmt.Sprintf("%020d.%s", n, rest)
		}
		out[name] = text
	}
	return out
}

// TestValues: the texts of a log have the values that the same types have in files.
func TestValues(t *testing.T) {
	for _, c := range []struct {
		kind, text string
		want       any // nil: an error
	}{
		{"string", "007", "007"}, {"long", "-7", -7}, {"long", "7.5", nil}, {"integer", "x", nil},
		{"double", "1e3", 1000.0}, {"float", "0.1", float64(float32(0.1))}, {"boolean", "true", true},
		{"boolean", "maybe", nil}, {"decimal(10,2)", "1.5", values.Number("1.50")}, {"decimal(10,0)", "15", 15},
		{"decimal(10,2)", "-0.05", values.Number("-0.05")}, {"decimal(10,2)", "1.505", nil},
		{"decimal(10,2)", "7", values.Number("7.00")}, {"decimal(10,2)", ".5", values.Number("0.50")},
		{"date", "2024-05-01", "2024-05-01"}, {"date", "1950-05-01", "1950-05-01"}, {"date", "2024-5-1", nil},
		{"timestamp", "2024-05-01 12:30:01", "2024-05-01 12:30:01+00:00"},
		{"timestamp", "2024-05-01T12:30:01.250000Z", "2024-05-01 12:30:01.250000+00:00"},
		{"timestamp_ntz", "2024-05-01 12:30:01.5", "2024-05-01 12:30:01.500000"},
	} {
		add := func(path, values string) string {
			return fmt.Sprintf(`{"add":{"path":%q,"partitionValues":{%s}}}`, path, values)
		}
		l := log{"0.json": basic + metaOf(c.kind, "") + add("a", fmt.Sprintf(`"k":%q`, c.text)) + add("b", `"k":""`) +
			add("c", `"k":null`) + add("d", "")}
		got, err := delta.Open(numbered(l), "t", nil)
		if (err == nil) != (c.want != nil) || err == nil && (!reflect.DeepEqual(got.Files[0].Values, []any{c.want}) ||
			got.Files[1].Values[0] != nil || got.Files[2].Values[0] != nil || got.Files[3].Values[0] != nil) {
			t.Errorf("%s %q: got %+v, %v", c.kind, c.text, got, err)
		}
	}
}

// TestReplay: a log with checkpoints in one file and in parts leads to the files that a dumb replay finds, at each
// version that is still there.
func TestReplay(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l, live := log{}, map[string]bool{}
		var states [][]string
		cleaned := uint64(0)
		for version := range 1 + rng.Uint64N(30) {
			var lines []string
			if version == 0 {
				lines = append(lines, strings.Split(strings.TrimSpace(basic+metaOf("long", "")), "\n")...)
			}
			touched := map[string]bool{}
			for range rng.IntN(6) {
				file := fmt.Sprintf("k=%d/a b.parquet", rng.IntN(12))
				uri := strings.ReplaceAll(file, " ", []string{" ", "%20"}[rng.IntN(2)])
				if touched[file] {
					continue
				}
				touched[file] = true
				if live[file] && rng.IntN(2) == 0 {
					delete(live, file)
					lines = append(lines, fmt.Sprintf(`{"remove":{"path":%q}}`, uri))
				} else {
					live[file] = true
					lines = append(lines, fmt.Sprintf(`{"add":{"path":%q,"partitionValues":{"k":"5"}}}`, uri))
				}
			}
			rng.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
			l[fmt.Sprintf("%d.json", version)] = strings.Join(lines, "\n")
			states = append(states, slices.Sorted(maps.Keys(live)))
			if rng.IntN(4) == 0 {
				writeCheckpoint(rng, l, version, states[version])
				if rng.IntN(3) == 0 {
					for n := range version {
						delete(l, fmt.Sprintf("%d.json", n))
					}
					cleaned = version
				}
			}
		}
		for version := range uint64(len(states)) {
			got, err := delta.Open(numbered(l), "t", &version)
			if err != nil {
				if version >= cleaned {
					t.Fatalf("seed %d, version %d: %v", seed, version, err)
				}
				continue
			}
			var files []string
			for _, f := range got.Files {
				files = append(files, f.Path)
				if !reflect.DeepEqual(f.Values, []any{5}) {
					t.Fatalf("seed %d: %+v", seed, f)
				}
			}
			if !slices.Equal(files, states[version]) || got.Version != version {
				t.Fatalf("seed %d, version %d: got %q, want %q", seed, version, files, states[version])
			}
		}
	}
}

// writeCheckpoint writes a checkpoint into a log, in one file or in parts. A second one may lack a part.
func writeCheckpoint(rng *rand.Rand, l log, version uint64, files []string) {
	rows := strings.Split(strings.TrimSpace(basic+metaOf("long", "")), "\n")
	for _, file := range files {
		rows = append(rows, fmt.Sprintf(`{"add":{"path":%q,"partitionValues":{"k":"5"}}}`, file))
	}
	rows = append(rows, `{"remove":{"path":"gone"}}`, `{"txn":{}}`)
	if rng.IntN(2) == 0 {
		l[fmt.Sprintf("%d.checkpoint.parquet", version)] = strings.Join(rows, "\n")
		return
	}
	n := 1 + rng.IntN(3)
	for i := range n {
		var part []string
		for j := i; j < len(rows); j += n {
			part = append(part, rows[j])
		}
		l[fmt.Sprintf("%d.checkpoint.%010d.%010d.parquet", version, i+1, n)] = strings.Join(part, "\n")
	}
	l[fmt.Sprintf("%d.checkpoint.%010d.%010d.parquet", version, 1, 9)] = "broken"
}

// FuzzOpen: no log makes Open panic, or leads out of the table.
func FuzzOpen(f *testing.F) {
	begin := basic + metaOf("decimal(5,2)", "")
	f.Add(begin + `{"add":{"path":"a%20b","partitionValues":{"k":"1.5"},"deletionVector":null}}`)
	f.Add(begin + `{"remove":{"path":"a"}}{"protocol":{"minReaderVersion":3,"readerFeatures":["x"]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"0.json", "0.checkpoint.parquet"} {
			got, err := delta.Open(numbered(log{name: text}), "t", nil)
			if err != nil {
				continue
			}
			for _, file := range got.Files {
				if !filepath.IsLocal(file.Path) || len(file.Values) != len(got.Keys) {
					t.Errorf("%q gives %+v", text, file)
				}
			}
		}
	})
}
