package archtest

// A room is one row of the import table. Patterns are paths below the module. "x/..." is x and all packages below it,
// "." is the root, and "*" is any package.
type room struct {
	path   string
	ours   []string // packages of this module that it may import, besides those of its own row
	theirs []string // libraries (import path prefixes); those of the owners table count as well
}

// rooms is the import table. The first row that matches decides.
var rooms = []room{
	// flags and printing: the work is in app
	{"cmd/millrace", list(".", "app/...", "clients", "cmd/millrace/certs", "orchestrator/planner/progress"), all},
	{"cmd/millrace/certs", list(".", "app/exit", "internal/secure/..."), all},
	{"bench/...", all, all},
	{"examples/...", all, all},

	// the words
	{".", none, none},

	// {mixing, sources, constructors, checkpoint} never import each other, with one exception: sources use the
	// permutation of mixing.
	{"mixing", list("."), list("golang.org/x/crypto/blake2b")},
	{"constructors", list(".", "internal/tokenid"), all},
	{"checkpoint/...", list("internal/failpoint", "internal/limits"), all},
	{"sources/format/registry", none, none},                                          // the names of formats: no reader
	{"sources/read/loader", list(".", "mixing", "proto", "sources/...", shell), all}, // the shell of the loader role
	{"sources/...", list(".", "mixing", "internal/tokenid", "internal/seam", "internal/failpoint",
		"internal/activity", "internal/limits"), all},
	{"pixels/header", none, none}, // bytes → what a plan has to know of an image
	// text → token ids: nothing of sources imports it
	{"text/tokenize/...", none, all},
	{"text/chat/...", list(".", "internal/tokenid", "sources", "sources/values", "sources/format/parts/fields"), all},

	// {orchestrator, sidecar} communicate only by proto
	// select
	{"orchestrator/planner", list(".", "mixing", "internal/seal", "internal/bucket", "orchestrator/planner/pack",
		"orchestrator/planner/progress"), none},
	{"orchestrator/planner/progress", list(".", "mixing"), list("golang.org/x/crypto/blake2b")}, // the planner's state
	{"orchestrator/planner/order", none, none},
	{"orchestrator/planner/pack", list(".", "internal/bucket", "mixing", "orchestrator/planner/order"), none},
	{"orchestrator/planner/cost", list(".", "orchestrator/planner/order"), none},
	{"orchestrator/planner/place", list(".", "internal/seal", "orchestrator/planner", "orchestrator/planner/cost",
		"orchestrator/planner/order"), none},
	{"orchestrator/planner/strategy", list(".", "orchestrator/planner", "orchestrator/planner/progress",
		"orchestrator/planner/cost", "orchestrator/planner/place"), none},
	{
		"orchestrator/planner/plannertest",
		list(".", "internal/bucket", "mixing", "orchestrator/planner", "orchestrator/planner/progress"),
		none,
	},
	// facts in ordinal order, for a run and for a dry run
	{"orchestrator/offers", list(".", "internal/tokenid", "proto", "orchestrator/planner"), none},
	// decisions from reports: the only floating point on the way to a plan; decisions are journaled
	{"orchestrator/feedback", list("."), none},
	{"orchestrator/lease", list(".", "internal/seam"), all},
	{"orchestrator/lease/hosts", list(".", "internal/seam", "orchestrator/lease"), all}, // who is there
	{"orchestrator/lease/leasetest", list(".", "orchestrator/lease"), none},
	{"orchestrator/lease/etcdtest", list("internal/needs"), list("go.etcd.io/etcd", "go.uber.org/zap")},
	{"orchestrator/parts", list(".", "proto", "internal/seal"), list("google.golang.org/protobuf")},
	{"orchestrator/placer", none, none}, // the way to an engine; its implementations are below app
	{"orchestrator/placer/keeper", list("internal/seam", "orchestrator/placer"), none},
	{"orchestrator/scale", none, none}, // the number of loaders: no clock, no plan
	{"orchestrator/placer/placertest", list("orchestrator/placer"), none},
	// copies of the journal on other hosts: no machine inside
	{"orchestrator/follow", list(".", "checkpoint/...", "proto", "internal/seam", "internal/wire",
		"orchestrator/lease"), list("google.golang.org/grpc")},
	// the loader of each stripe: no store, no clock
	{"orchestrator/roster/share", none, none},
	{"orchestrator/roster", list(".", "proto", "orchestrator/offers", "orchestrator/parts", "orchestrator/roster/share",
		"orchestrator/planner/progress", "internal/wire"), all},
	// reads the store: no machine inside
	{"orchestrator/ledger", list(".", "checkpoint", "proto", "orchestrator/planner/progress", "internal/wire"), all},
	// the run's state: no machine inside
	{"orchestrator/facts", list(".", "mixing", "checkpoint", "proto", "orchestrator/planner/...",
		"orchestrator/ledger"), list("google.golang.org/protobuf")},
	// how well trainers are fed: decides nothing
	{"orchestrator/figures", list(".", "proto", "internal/activity", "internal/wire"),
		list("github.com/prometheus/client_golang", "google.golang.org/protobuf")},
	// when ranks begin: no store, no clock
	{"orchestrator/attempts", list(".", "proto", "orchestrator/facts", "orchestrator/planner",
		"orchestrator/planner/cost", "orchestrator/planner/progress", "orchestrator/roster"),
		list("google.golang.org/protobuf")},
	// requests → records: no store, no clock
	{"orchestrator/mix", list(".", "mixing", "proto", "orchestrator/facts", "orchestrator/planner/...",
		"orchestrator/roster"), none},
	{"orchestrator", list(".", "mixing", "checkpoint", "proto", "orchestrator/...", shell), all},
	{"sidecar/gauge", list(".", "proto", "internal/wire", "internal/activity"), none},
	{"sidecar/retrieve", none, none}, // whom to ask for rows: no clock, no goroutine, no socket
	{"sidecar/...", list(".", "constructors", "proto", "internal/seal", shell), all},

	// for every package
	{"clients", none, none},
	{"proto", none, all},
	{"internal/seam", none, list("golang.org/x/sys/unix")},
	{"internal/needs", none, none}, // the skips that tests may have
	{"internal/failpoint", none, none},
	{"internal/tokenid", none, none},
	{"internal/limits", none, list("golang.org/x/sys/unix")},
	{"internal/memfd", none, list("golang.org/x/sys/unix")},
	{"internal/arena/...", list("internal/arena", "internal/memfd"), none},
	{"internal/heartbeat/...", list("internal/seam"), list("golang.org/x/sys/unix")},
	{"internal/event", list("internal/seam"), none},
	{"internal/bucket", list("."), none},
	{"internal/seal", list("."), list("golang.org/x/crypto/blake2b", "golang.org/x/sys/cpu")},
	{"internal/activity", none, none},
	{"internal/outbox", none, none},
	{"internal/wire", list(".", "proto", "internal/activity", "internal/tokenid"), all},
	{"internal/secure", list(".", "proto", "internal/seam", "internal/wire"), all},
	{"internal/secure/issue", list(".", "internal/secure"), none},
	{"app/config/tree", list("."), list("github.com/goccy/go-yaml")},
	{"app/config/value", list(".", "app/config/tree"), none},
	{"app/config/decode", list("app/config/tree", "app/config/value"), none},
	{"app/config/resume", list(".", "app/config/decode"), none},
	{"app/config/identity", list("."), list("golang.org/x/crypto/blake2b")},
	// the check of a mixture file includes filters and formats
	{"app/config/...", list(".", "internal/bucket", "text/chat", "sources/format/parts/fields", "sources/read/filter",
		"sources/find", "sources/find/layout",
		"sources/format/registry"), all},

	// for the command only
	// mixture file → rooms
	{
		"app/setup",
		list(".", "internal/activity", "internal/bucket", "mixing", "proto", "sources/...", "text/...",
			"constructors",
			"orchestrator/planner/...", "orchestrator/feedback", "app/config/..."),
		all,
	},
	{"app/dryrun", list(".", "internal/activity", "internal/tokenid", "mixing", "sources/...", "text/...",
		"constructors", "orchestrator/planner/...", "orchestrator/offers", "app/config/...", "app/setup"), all},
	{"app/exit", list(".", "internal/limits"), none},
	{"app/place/kubernetes", list("internal/seam", "orchestrator/placer"), none},
	// an etcd member for development: a process of its own, so that the program has no etcd server inside
	{"app/member", list("app/exit", "app/supervisor"), list("golang.org/x/sys/unix")},
	// the file of a run's etcd cluster
	{"app/cluster", list(".", "app/config/...", "app/supervisor", "internal/seam",
		"internal/secure", "orchestrator/lease/..."), none},
	{"app/rundir", list(".", "checkpoint", "app/cluster", "proto", "internal/seam", "internal/secure",
		"app/exit", "app/supervisor", "orchestrator/lease/..."), list("google.golang.org/grpc")},
	// requests for other ranks of a living `up`
	{"app/reshape", list("app/exit", "app/roles", "app/rundir", "app/supervisor", "internal/limits", "internal/seam",
		"orchestrator/lease/hosts"), none},
	// wiring of the processes
	{"app/roles", list(".", "mixing", "checkpoint", "proto", "sources/...", "text/...", "sidecar/...",
		"orchestrator/...", "app/...", shell), all},
	// a batch as text
	{"app/preview", list(".", "internal/tokenid", "text/tokenize", "app/config", "app/dryrun", "app/exit", "app/plan",
		"app/report"), none},
	// the work of the commands of these names
	{"app/check", list("app/config", "app/dryrun", "app/exit", "app/growing", "app/profile", "app/report", "app/roles",
		"app/setup"), none},
	{"app/index", list("app/config", "app/dryrun", "app/exit", "app/profile", "app/profile/measure", "app/report",
		"app/roles", "app/setup"), none},
	{"app/plan", list(".", "app/config", "app/dryrun", "app/exit", "app/report", "app/roles"), none},
	// a rolling restart
	{"app/restart", list("internal/seam", "proto", "app/exit", "app/report", "app/rundir", "app/supervisor"), none},
	// rows of answers as files
	{"app/export", list("app/exit"), list("github.com/apache/arrow/go/v17")},
	// questions to a run, living or stopped
	{"app/query", list(".", "checkpoint", "proto", "internal/seam", "internal/wire", "orchestrator",
		"orchestrator/facts", "orchestrator/ledger", "app/config", "app/exit", "app/report", "app/roles",
		"app/rundir", "app/supervisor"),
		list("google.golang.org/protobuf")},
	// the processes of one host, for `up` and the commands of its roles
	{"app/up", list(".", "app/cluster", "app/config", "app/dryrun", "app/exit", "app/profile", "app/report",
		"app/reshape", "app/roles", "app/rundir", "app/setup", "app/supervisor", "internal/event", "internal/seam",
		"orchestrator/lease/..."), none},
	{"app/report", list(".", "checkpoint", "proto", "internal/wire", "orchestrator/facts",
		"orchestrator/planner", "app/exit", "app/config/...", "app/dryrun",
		"app/setup", "app/supervisor"), none},
	// the files of a source at a state and now
	{"app/growing", list(".", "orchestrator/planner", "orchestrator/facts", "sources/facts/growth",
		"sources/facts/index", "sources/read/order", "app/config"), none},
	// the cost of reading each source: measured, and kept
	{"app/profile/measure", list(".", "internal/activity", "app/config", "app/dryrun",
		"app/profile", "app/setup", "sources/...", "text/..."), none},
	{"app/profile", list("app/config", "app/setup"), none},
	{"app/look", list(".", "pixels/header", "sources/...", "text/...", "app/config", "app/dryrun",
		"app/report", "app/setup"), none},
	// files of other loaders → a mixture file; its test parses that file
	{"app/importer", list(".", "app/config"),
		list("github.com/goccy/go-yaml")},
	{"app/top", list("app/query", "app/report", "app/rundir"), list("golang.org/x/term")},
	// trainers and figures of millrace bench, and its mock run
	{"app/bench", list(".", "constructors", "proto", "internal/activity", "internal/seal", "sidecar",
		"internal/limits", "app/config", "app/dryrun", "app/exit", "app/report", "app/roles", "app/rundir",
		"app/setup", "app/up"),
		list("golang.org/x/sync", "golang.org/x/sys/unix")},
	{"app/supervisor", list(".", "internal/seam", "internal/failpoint", "internal/limits",
		"orchestrator/placer"),
		list("golang.org/x/sys/unix")},
	// the placer of one host
	{"app/place/local", list("app/supervisor", "internal/seam", "orchestrator/placer"), none},
	// the placer of Ray: goals and reports in etcd
	{"app/place/mailbox", list(".", "app/cluster", "orchestrator/lease", "orchestrator/placer"),
		list("go.etcd.io/etcd")},
	{"verify/sim/...", all, all},

	// checks of the repository
	{"verify/archtest", none, none},
	{"verify/testreport", list("internal/needs"), none},
	{"verify/mutants", none, none},
	{"verify/flips", list(".", "sources/...", "text/...", "app/config", "app/setup"),
		list("github.com/klauspost/compress")},
}

// shell lists the packages for roles that use the clock and the network.
var shell = []string{
	"internal/wire", "internal/event", "internal/failpoint", "internal/heartbeat", "internal/arena", "internal/memfd",
	"internal/seam", "internal/activity", "internal/secure", "internal/tokenid",
	"internal/outbox",
}

// owners lists libraries that only some rooms may import.
var owners = []struct {
	library string
	rooms   []string
}{
	{"github.com/cockroachdb/pebble", list("checkpoint/...")},
	{"go.etcd.io/", list("orchestrator/lease/...", "app/place/mailbox")},
	{"go.uber.org/zap", list("orchestrator/lease/...")},
	{"github.com/NVIDIA/", list("sidecar/gpu")},
	{"github.com/apache/arrow/", list("sources/format/parquet", "app/export")},
	{"github.com/parquet-go/", list("sources/format/parquet")},
	{"github.com/expr-lang/", list("sources/read/filter")},
	{"github.com/pkoukk/", list("text/tokenize/...", "bench/...")},
	{"github.com/spf13/", list("cmd/...")},
	{"github.com/schollz/", list("cmd/...")},
	{"github.com/goccy/", list("app/config/...", "app/importer", "sources/find",
		"sources/find/layout")},
	{"github.com/aws/", list("sources/store/remote")},
	{"github.com/Azure/", list("sources/store/remote")},
	{"golang.org/x/oauth2", list("sources/store/remote")},
	{"github.com/invopop/", list("app/config/...")},
}

// testOnly lists libraries that only tests, and packages whose name ends in test, may import.
var testOnly = []string{
	"testing", "pgregory.net/rapid", "go.uber.org/goleak", "github.com/cockroachdb/datadriven",
	"github.com/rogpeppe/go-internal", "github.com/johannesboyne/gofakes3",
}

// tables lists package variables that never change and that Go cannot declare as constants.
var tables = map[string][]string{
	"text/chat/jinja": {"builtins", "layouts", "levels", "operators", "plainFilters", "refused", "tests",
		"textMethods"},
	"orchestrator/planner/plannertest": {"PretrainShares", "LongContextShares", "lengthClasses"},
	"sources/store/remote":             {"nextPage"},
	"pixels/header":                    {"brands", "colours", "foreigners", "frames"},
	"sources/find":                     {"sides", "packings"},
	"sources/format/registry":          {"rows"},
	"app/config":                       {"examples"},
	"app/config/resume":                {"keyRules"},
	"app/config/value":                 {"byteUnits"},
	"app/config/tree":                  {"refused", "syntaxCures"},
	"app/config/identity":              {"groups"},
	"internal/wire":                    {"table"},
	"internal/secure":                  {"callers"},
	"checkpoint":                       {"castagnoli"},
	"sidecar/retrieve":                 {"kindNames", "stateNames", "table"},
	"cmd/millrace":                     {"version"}, // set by the linker
}

// longFiles and longFuncs may exceed the limits, for the given reasons.
var (
	longFiles = map[string]string{}
	longFuncs = map[string]string{}
)

const (
	maxFileLines = 500
	maxFuncLines = 80
)

var (
	none []string
	all  = []string{"*"}
)

func list(first ...any) []string {
	var out []string
	for _, x := range first {
		switch x := x.(type) {
		case string:
			out = append(out, x)
		case []string:
			out = append(out, x...)
		}
	}
	return out
}
