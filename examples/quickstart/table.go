package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
)

// line is one line of the table: what happened, and what came of it.
type line struct {
	what, ref, key string
	seen, want     counts
}

// counts are what must be right.
type counts struct {
	outcome  string
	attempts int // on record
	effects  int // at the server
	keys     int // different ones, at the server and on record together
}

func (c counts) String() string {
	return fmt.Sprintf("%q after %d attempts with %d effects under %d keys", c.outcome, c.attempts, c.effects, c.keys)
}

// writeTable writes the lines under each other. Of a key the first 8 characters
// are enough to tell it from the others.
func writeTable(w io.Writer, lines []line) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "WHAT HAPPENS\tREF\tKEY\tATTEMPTS\tOUTCOME\tEFFECTS")
	for _, l := range lines {
		fmt.Fprintf(tw, "%s\t%s\t%.8s…\t%d\t%s\t%d\n", l.what, l.ref, l.key, l.seen.attempts, l.seen.outcome, l.seen.effects)
	}
	return tw.Flush()
}

// check names each line that is not as it should be, and each ref whose key
// has changed from one line to a later one.
func check(lines []line) error {
	var wrong []error
	keys := map[string]string{} // by ref
	for _, l := range lines {
		if l.seen != l.want {
			wrong = append(wrong, fmt.Errorf("line %q is wrong: %s, want %s", l.what, l.seen, l.want))
		}
		if first, ok := keys[l.ref]; ok && first != l.key {
			wrong = append(wrong, fmt.Errorf("line %q is wrong: the key of %s was %s and is %s", l.what, l.ref, first, l.key))
		} else {
			keys[l.ref] = l.key
		}
	}
	return errors.Join(wrong...)
}
