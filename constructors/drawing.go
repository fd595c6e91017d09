package constructors

import (
	"runtime"
	"sync"
)

// workers bounds the goroutines that write one microbatch. Two cores write twice as fast as one.
type workers struct {
	most    int // goroutines
	columns int // that each has at least
}

// allCores uses every core for parts of at least 1 MiB of tensors: smaller ones are not worth a goroutine.
func allCores() workers { return workers{runtime.GOMAXPROCS(0), 40_000} }

// parts returns the number of parts in which a microbatch of `columns` columns is written.
func (w workers) parts(columns int) int { return max(1, min(w.most, columns/w.columns)) }

// drawing is a microbatch that is being written. stride is the number of columns of a row, 0 for varlen.
type drawing[T int32 | int64] struct {
	c      *Collator
	in     arranged
	out    arrays[T]
	stride int
}

// pen is a place between two segments.
type pen struct {
	segment int    // the next one
	column  int    // the end of the segment before, counted over all rows
	row     uint32 // of the segment before
	number  int32  // of the segment before, in its row
}

func (p *pen) enter(row uint32) {
	if row != p.row {
		p.row, p.number = row, 0
	}
	p.number++
}

// inParts writes the microbatch in n parts of about equal size at the same time. The parts write different columns.
func (d *drawing[T]) inParts(n int) {
	var running sync.WaitGroup
	var p pen
	for k := 1; k < n; k++ {
		from := p
		p = d.skip(p, len(d.out.positions)*k/n)
		end := p.segment
		running.Go(func() { d.draw(from, end) })
	}
	p = d.draw(p, len(d.in.part))
	d.out.padding(p.column, len(d.out.positions))
	running.Wait()
}

// skip returns the first place at a column or behind it.
func (d *drawing[T]) skip(p pen, column int) pen {
	var room [2]run
	for ; p.segment < len(d.in.part) && p.column < column; p.segment++ {
		a := &d.in.part[p.segment]
		p.enter(a.Row)
		runs := d.c.runs(a, &room)
		last := runs[len(runs)-1]
		p.column = int(a.Row)*d.stride + last.at + last.to - last.from
	}
	return p
}

// draw writes the segments from p on, up to segment number end, with the padding before them. It returns the place
// behind them.
func (d *drawing[T]) draw(p pen, end int) pen {
	var room [2]run
	for ; p.segment < end; p.segment++ {
		a := &d.in.part[p.segment]
		p.enter(a.Row)
		for _, r := range d.c.runs(a, &room) {
			start := int(a.Row)*d.stride + r.at
			d.out.padding(p.column, start)
			if d.in.masked != nil && d.in.masked[p.segment] {
				d.out.masked(start, r, p.number)
			} else {
				d.out.segment(start, r, d.in.tokens[p.segment], p.number)
			}
			p.column = start + r.to - r.from
		}
	}
	return p
}
