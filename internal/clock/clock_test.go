package clock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheSystemsClocksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Now(t.Context())
		time.Sleep(time.Hour)
		b := Now(t.Context())
		if a.Boot == "" || a.Boot != b.Boot || b.Mono-a.Mono != time.Hour || b.Wall.Sub(a.Wall) != time.Hour {
			t.Errorf("%+v, an hour later %+v", a, b)
		}
		if a.Wall.Location() != time.UTC || a.Wall != a.Wall.Round(0) {
			t.Error("the wall clock carries a zone or a monotonic part")
		}
	})
}

type fixed Reading

func (f fixed) Read() Reading { return Reading(f) }

func TestTheClockOfTheContextIsAsked(t *testing.T) {
	want := Reading{Mono: time.Hour, Boot: "b"}
	ctx := With(t.Context(), fixed(want))
	if got := Now(context.WithoutCancel(ctx)); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAnUnknownBootIsSharedWithNobody(t *testing.T) {
	_, a := unknownBoot()
	_, b := unknownBoot()
	if a == b {
		t.Error("two processes would compare their monotonic clocks")
	}
}
