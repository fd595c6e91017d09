package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"millrace/internal/tokenid"
	"millrace/proto"
)

// TestRowsComeAsTheyWereAdded: rows of both widths, with and without fields, in any order.
func TestRowsComeAsTheyWereAdded(t *testing.T) {
	type added struct {
		number uint32
		ids    []uint32
		fields string
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var want, got []added
		r := &proto.FetchReply{}
		for number := range rng.Uint32N(6) {
			a := added{number: number, ids: make([]uint32, rng.IntN(9))}
			for i := range a.ids {
				a.ids[i] = rng.Uint32N(1 << 16)
			}
			if len(a.ids) > 0 && rng.IntN(2) == 0 {
				a.ids[rng.IntN(len(a.ids))] = 1<<16 + rng.Uint32N(2)*(1<<31)
			}
			if rng.IntN(3) == 0 {
				a.fields = `{"lang": "en"}`
			}
			r.Row, r.Count = append(r.Row, number), append(r.Count, uint32(len(a.ids)))
			isWide := tokenid.IsWide(a.ids)
			SetWide(r, isWide)
			SetFields(r, a.fields)
			r.Tokens = AppendIDs(r.Tokens, a.ids, isWide)
			want = append(want, a)
		}
		for row, err := range Rows(r, false) {
			if err != nil {
				t.Fatal(err)
			}
			a := added{number: row.Number, ids: make([]uint32, row.Count), fields: row.Fields}
			for i := range a.ids {
				if row.IsWide {
					a.ids[i] = binary.LittleEndian.Uint32(row.IDs[4*i:])
				} else {
					a.ids[i] = uint32(binary.LittleEndian.Uint16(row.IDs[2*i:]))
				}
			}
			got = append(got, a)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%v came, %v were added", got, want)
		}
	}
}
