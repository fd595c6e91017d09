package follow

import (
	"slices"
	"sync"
)

// mostFollowers is the processes that a leader serves. Further ones wait.
const mostFollowers = 2

// Places are the places of the followers of one process, which leads all streams of a run. A process that has a place
// has it in every stream: a copy of one journal alone would be useless, because its host could not lead.
type Places struct {
	mu      sync.Mutex // also guards the leaders
	leaders []*Leader  // of the streams
	waiting []string   // identities of the processes in the order of their coming; the first mostFollowers are served
}

// add adds the leader of a stream.
func (p *Places) add(l *Leader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaders = append(p.leaders, l)
}

// Copies returns how many hosts have the journals of all streams in step, with the leader's.
func (p *Places) Copies() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.leaders) == 0 {
		return 0
	}
	count := 0
	for _, j := range p.leaders[0].listed {
		if !slices.ContainsFunc(p.leaders, func(l *Leader) bool { return !l.lists(j.identity) }) {
			count++
		}
	}
	return count
}

// join notes that a process has a stream to one of the leaders. The caller holds mu.
func (p *Places) join(identity string) {
	if !slices.Contains(p.waiting, identity) {
		p.waiting = append(p.waiting, identity)
	}
	p.assign()
}

// leave notes that a stream of a process has ended. The process keeps its place while it has another one. The caller
// holds mu.
func (p *Places) leave(identity string) {
	if !slices.ContainsFunc(p.leaders, func(l *Leader) bool { return l.has(identity) }) {
		p.waiting = slices.DeleteFunc(p.waiting, func(i string) bool { return i == identity })
	}
	p.assign()
}

// assign gives the first processes their places. The caller holds mu.
func (p *Places) assign() {
	served := p.waiting[:min(len(p.waiting), mostFollowers)]
	for _, l := range p.leaders {
		for _, f := range l.followers {
			if !f.hasPlace && slices.Contains(served, f.identity) {
				f.hasPlace = true
				close(f.served)
			}
		}
		l.change()
	}
}
