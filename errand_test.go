package samekey_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/keyring"
)

// errandVariable tells a child of a test what to do.
const errandVariable = "SAMEKEY_TEST_ERRAND"

// errand is what a child process does: it charges, number by number, through
// a keyring that exists, and tells its parent about each step.
type errand struct {
	Dir, URL string
	Prefix   string // of names and bodies
	Check    []int  // these must be done, before anything else
	Todo     []int  // these come first
	From     int    // then all from here on,
	To       int    // up to here; 0: until somebody ends the process
	Workers  int
	Wait     bool // for a line from the parent, once ready
}

// TestMain runs an errand instead of the tests where there is one.
func TestMain(m *testing.M) {
	text := os.Getenv(errandVariable)
	if text == "" {
		m.Run()
		return
	}
	var e errand
	err := json.Unmarshal([]byte(text), &e)
	if err == nil {
		err = e.run()
	}
	if err != nil {
		say("failed %v", err)
		os.Exit(1)
	}
}

// say tells the parent, in one write: a line is there before the next step.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

func (e errand) name(n int) string { return fmt.Sprintf("%s-%d", e.Prefix, n) }
func (e errand) body(n int) string { return fmt.Sprintf(`{"name":%q}`, e.name(n)) }

func (e errand) run() (err error) {
	store, err := badgerkeys.Open(e.Dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	c := client.New(store, box(boxTerms), &client.Options{Retry: quick(20)})
	defer func() { err = errors.Join(c.Close(context.Background()), err) }()
	for _, n := range e.Check {
		in, err := c.Ring().Get(context.Background(), named(e.name(n)))
		if err != nil || in.State != keyring.StateDone || string(in.Request.Body) != e.body(n) {
			return fmt.Errorf("%s was done, and is now %s: %w", e.name(n), in.State, err)
		}
	}
	say("ready")
	if e.Wait {
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
	}
	numbers := make(chan int)
	failed := make(chan error, e.Workers)
	var wg sync.WaitGroup
	for range e.Workers {
		wg.Go(func() {
			for n := range numbers {
				say("begun %d", n)
				key, err := e.charge(c, n)
				if err != nil {
					failed <- err
					return
				}
				say("done %d %s", n, key)
			}
		})
	}
	give := func(n int) bool {
		select {
		case numbers <- n:
			return true
		case err = <-failed:
			return false
		}
	}
	for _, n := range e.Todo {
		if !give(n) {
			return err
		}
	}
	for n := e.From; e.To == 0 || n < e.To; n++ {
		if !give(n) {
			return err
		}
	}
	close(numbers)
	wg.Wait()
	select {
	case err = <-failed:
	default:
	}
	return err
}

// charge calls Do until the effect exists, and stops at anything but doubt.
func (e errand) charge(c *client.Client, n int) (keyring.Key, error) {
	ctx := context.Background()
	for range 100 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, strings.NewReader(e.body(n)))
		if err != nil {
			return keyring.Key{}, err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := c.Do(ctx, named(e.name(n)), req)
		switch {
		case err == nil:
			return res.Intent.Key, nil
		case errors.Is(err, client.ErrUnknown), errors.Is(err, client.ErrPending), errors.Is(err, client.ErrNotSent):
			time.Sleep(time.Until(client.OutcomeOf(err).NotBefore))
		default:
			return keyring.Key{}, err
		}
	}
	return keyring.Key{}, fmt.Errorf("%s is not done after 100 calls", e.name(n))
}

// child is a process on an errand.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Reader
	stdin interface{ Write([]byte) (int, error) }

	begun []int          // numbers, in the order in which they were told
	done  map[int]string // their keys
}

// start starts a child, and returns once it is ready: once the keyring is open.
func (e errand) start(t *testing.T) *child {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0]), done: map[int]string{}} //nolint:gosec // this test itself
	c.cmd.Env = append(os.Environ(), errandVariable+"="+string(text))
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin, c.lines = stdin, bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A child that hangs is a failure to report, not to wait for.
	stuck := time.AfterFunc(time.Minute, c.kill)
	defer stuck.Stop()
	for {
		line, err := c.lines.ReadString('\n')
		if line == "ready\n" {
			return c
		}
		if err != nil || strings.HasPrefix(line, "failed ") {
			c.kill()
			c.cmd.Wait() // it failed, which is reported
			t.Fatalf("the child never got ready: %q %v", line, err)
		}
	}
}

func (c *child) kill() { c.cmd.Process.Kill() } // it may have ended

// goOn lets a child go on that waits.
func (c *child) goOn() {
	c.t.Helper()
	if _, err := c.stdin.Write([]byte("\n")); err != nil {
		c.t.Fatal(err)
	}
}

// end reads what the child has to tell until it ends, and returns how it did.
// A line that was cut by the kill counts for nothing.
func (c *child) end() error {
	c.t.Helper()
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return c.cmd.Wait()
		}
		var n int
		var key string
		switch {
		case strings.HasPrefix(line, "failed "):
			c.t.Errorf("a child: %s", line)
		case scanned(fmt.Sscanf(line, "done %d %s", &n, &key)) == 2:
			c.done[n] = key
		case scanned(fmt.Sscanf(line, "begun %d", &n)) == 1:
			c.begun = append(c.begun, n)
		}
	}
}

// scanned leaves the error out: a line of another kind has one.
func scanned(n int, _ error) int { return n }
