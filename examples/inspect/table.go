package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/keyring"
)

const opening = `A shop charges four orders, and something goes wrong with each. Orders 1, 2 and 4 go
to an endpoint that charges again for each request, whatever its key; order 3 goes to
one that knows a key again.

`

const closing = `
THE LOOK SAYS  what the program found in the server's list of charges; a look that finds
               nothing counts only after a while, since the request may still arrive
OUTCOME        what is known in the end, and by whose word
SENT           requests to charge that the server saw, under so many KEYS
CHARGES        charges that the server made

Shown: nothing was sent a second time before somebody had looked, or the server itself
had said no; and no order was charged twice. The code of this is in examples/inspect.
`

// line is one line of the table: what happened to an order, and what came of it.
type line struct {
	order, what, look, then string
	seen, want              counts
}

// counts are what must be right.
type counts struct {
	outcome                 string
	requests, keys, charges int // at the server
}

func (c counts) String() string {
	return fmt.Sprintf("%s after %d requests under %d keys with %d charges", c.outcome, c.requests, c.keys, c.charges)
}

// add counts what the server saw of an order, whose last call returned res.
func (s *shop) add(l line, res *client.Result) {
	l.seen = counts{outcome: res.Outcome.State.String() + " by server"}
	if res.Outcome.Source == keyring.SourceInspection {
		l.seen.outcome = res.Outcome.State.String() + " by look"
	}
	at := path(l.order)
	l.seen.requests, l.seen.keys, l.seen.charges = s.srv.Hits(at), len(s.srv.Keys(at)), s.srv.Effects(at)
	s.lines = append(s.lines, l)
}

// tell writes the table, and names each line that is not as it should be.
func (s *shop) tell(w io.Writer) error {
	fmt.Fprint(w, opening)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ORDER\tWHAT HAPPENS\tTHE LOOK SAYS\tWHAT FOLLOWS\tOUTCOME\tSENT\tKEYS\tCHARGES")
	var wrong []error
	for _, l := range s.lines {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", l.order, l.what, l.look, l.then, l.seen.outcome, l.seen.requests, l.seen.keys, l.seen.charges)
		if l.seen != l.want {
			wrong = append(wrong, fmt.Errorf("%s is wrong: %s, want %s", l.order, l.seen, l.want))
		}
	}
	if err := errors.Join(append(wrong, tw.Flush())...); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, closing)
	return err
}
