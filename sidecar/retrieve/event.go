package retrieve

import "time"

// Kind is the kind of an event.
type Kind uint8

// The kinds of events. Those from Came to Faulty are of a request: nothing follows if the portion does not wait for it.
const (
	Due        Kind = iota // take the next action: Using, Spare
	Sent                   // an order to ask has become a request: Request, Loader, Purpose, Rows
	Came                   // a row: Request, Row
	Silent                 // the loader is judged dead: Request, Using, Spare, Why
	Late                   // the next reply of the loader is late: Request, Using, Spare
	Complete               // the loader has sent all rows of the request
	Bad                    // it could not decode Documents; none: it does not say which
	Final                  // every other try would end with the same error Why
	Lost                   // the loader is dead or out of reach: Why
	Fenced                 // the loader does not serve the stripe: Why
	Deposed                // the same, of a loader that replaced another one: no directory has named it yet
	Faulty                 // the loader, or its host, has a fault: Why
	Salvaged               // an order to salvage is carried out: Request, Loader, Purpose, Why as ordered
	Switched               // an order to switch is carried out: IsReplaced, Loader, Why as ordered
	Moved                  // the directory has changed: Using, Spare
	Masked                 // Rows are masked
	Woke                   // a time to try again may have come
	hedgeOver              // a request to a standby beside a late loader has ended
	hedgeLost              // the same, because the standby is lost
	hedgeFinal             // the same, with an error that ends the run
	kinds
)

var kindNames = [kinds]string{"due", "sent", "came", "silent", "late", "complete", "bad", "final", "lost", "fenced",
	"deposed", "faulty", "salvaged", "switched", "moved", "masked", "woke", "hedge over", "hedge lost", "hedge final"}

// String names the kind for messages.
func (k Kind) String() string { return kindNames[k] }

// isOfRequest reports whether the event is of a request that the portion may have left.
func (k Kind) isOfRequest() bool { return k >= Came && k <= Faulty }

// ofHedge returns the kind for a request to a standby beside a late loader. The loader may still answer, so a standby
// that fails or cannot decode a document changes nothing.
func (k Kind) ofHedge() Kind {
	switch k {
	case Complete, Bad, Fenced, Deposed, Faulty:
		return hedgeOver
	case Lost:
		return hedgeLost
	case Final:
		return hedgeFinal
	}
	return k
}

// Event is one event of a portion. Each kind uses the fields that it names; all have the time.
type Event struct {
	Kind         Kind
	Now          time.Time
	Request      Request
	Row          int
	Rows         []int
	Documents    []uint64
	Using, Spare *Loader // of the stripe, as the directory names them; nil: there is none
	Loader       *Loader
	Purpose      Purpose
	IsReplaced   bool // the stripe has another loader now
	Why          error
}

// Order is the kind of an action.
type Order uint8

// The kinds of actions.
const (
	Send    Order = iota // ask Loader for Rows, in one or more requests; report each with Sent
	Take                 // file the row that has come: Request, Row
	Compare              // compare the row that has come with the copy that was taken: Request, Row
	Leave                // nothing more is needed of Request
	Salvage              // file the rows that the loader of Request has completed in shared memory; report Salvaged
	Switch               // replace Loader by its standby, if it still serves the stripe; report Switched
	Mask                 // have Rows masked: two readings could not decode them
	Rest                 // wait until Retry or a change of the directory: for Rows, Loader, Why
	Wait                 // Loader counts as dead and has no standby: Rows, Why
	Fail                 // Why ends the run
)

// Action is one action that follows from an event.
type Action struct {
	Kind    Order
	Request Request
	Row     int
	Rows    []int
	Loader  *Loader
	Purpose Purpose
	Why     error
}
