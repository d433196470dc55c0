package retry

import "testing"

func TestABudgetIsRefilledBySuccess(t *testing.T) {
	b := &Budget{Burst: 3, Share: 0.5}
	take := func(want bool) {
		t.Helper()
		if got := b.Take(); got != want {
			t.Fatalf("take: %v, want %v", got, want)
		}
	}
	for range 3 {
		take(true)
	}
	take(false)
	b.Return()
	take(false)
	b.Return()
	take(true)
	take(false)
	for range 100 { // it never holds more than it began with
		b.Return()
	}
	for range 3 {
		take(true)
	}
	take(false)
}

func TestABudgetsDefaults(t *testing.T) {
	var zero Budget
	for i := range defaultBurst {
		if !zero.Take() {
			t.Fatalf("used up after %d", i)
		}
	}
	if zero.Take() {
		t.Error("the default has no bound")
	}
	unbounded := &Budget{Burst: -1}
	for range 10 * defaultBurst {
		if !unbounded.Take() || !(*Budget)(nil).Take() {
			t.Fatal("no bound was asked for")
		}
	}
	(*Budget)(nil).Return()
}
