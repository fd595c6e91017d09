package budget

import "testing"

// TestBudget: the last quarter is for feeds below their share. Forced bytes count. Closing gives everything back.
func TestBudget(t *testing.T) {
	b := New(1000)
	woken := 0
	one, two := b.Open(func() {}), b.Open(func() { woken++ })
	if !one.Take(740) || one.Take(20) {
		t.Fatal("one feed must stop at three quarters")
	}
	if !two.Take(250) || two.Take(250) {
		t.Fatal("the other must get the rest")
	}
	two.Force(100)
	if b.used != 1090 {
		t.Fatalf("used %d", b.used)
	}
	one.Close()
	if b.used != 350 || woken != 1 {
		t.Fatalf("used %d after closing, woken %d", b.used, woken)
	}
	if !two.Take(650) || two.Take(1) {
		t.Fatal("alone, a feed may have all")
	}
}

// TestWakeHoldsNoLock: a wake may call the budget, so the budget's lock is free.
func TestWakeHoldsNoLock(t *testing.T) {
	b := New(10)
	woken := 0
	q := b.Open(func() { b.Open(func() {}); woken++ })
	if q.Take(11) {
		t.Fatal("more than the limit was granted")
	}
	q.WakeShort()
	if woken != 1 {
		t.Fatalf("woken %d times, want 1", woken)
	}
}
