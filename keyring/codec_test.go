package keyring

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew (only for a new format)")

// goldenRecord has every field set, so that a field that changes its stored
// form shows.
func goldenRecord() (*record, Request) {
	req := Request{
		Method: "POST", URL: "https://api.example.com/v1/charges?dry_run=1",
		Header: map[string][]string{"Content-Type": {"application/json"}, "Idempotency-Key": {"k1"}, "X-Two": {"a", "b"}},
		Body:   []byte("{\"amount\":1250}\x00\xff"),
	}
	ref := Ref{Scope: "acct_1", Name: "order-8123/charge"}
	raw := encodeRequest(req)
	sum := sumOf(ref, "request", raw)
	end := stampOf(at(2 * time.Second))
	return &record{
		Ref: ref, Revision: 3, WriteID: "w", Begun: stampOf(at(0)), Last: end, ClockOff: true,
		Generations: []generation{{
			Number: 1, Key: "k1", Form: 1, Parts: []storedPart{{Name: "body", Sum: bytes.Repeat([]byte{7}, 16)}},
			Method: "POST", Needs: []string{"header Authorization"},
			Terms: storedTerms{
				Profile: "draft", Dedup: DedupKey, KeepsRefusals: true, MarksRunning: true,
				Retention: 24 * time.Hour, Margin: time.Hour, Spacing: time.Second, Settle: time.Minute,
			},
			RequestSum: sum[:], Age: time.Second,
			Attempts: []attempt{{
				Number: 1, Hold: "h", Owner: "test", Identity: "key-1", Start: stampOf(at(time.Second)), Deadline: 30 * time.Second, End: &end,
				Verdict: storedVerdict{
					Kind: VerdictDone, Status: 201, EffectID: "e1", Code: "c", RequestID: "r", Why: "because", RetryAfter: time.Second,
					Date: t0, NoResend: true, Front: true, SignIn: true, Replayed: true, Unreadable: true,
				},
			}},
			Findings:  []finding{{Kind: FindingPresent, EffectID: "e1", By: "ann", Evidence: "list", Said: t0, At: end, After: 1, Attested: true, TooSoon: true}},
			Abandoned: &end,
		}},
		Hold:     &holdMark{ID: "h", Owner: "test", Session: "s", Since: stampOf(at(0)), Lease: time.Minute},
		Park:     &park{Since: end, Wait: time.Minute},
		Round:    &round{Since: end, Attempts: 1, Over: true},
		AnswerOf: 1, Answer: []byte("answer\x00\xff"),
	}, req
}

// TestFormat1IsReadForEver compares with files that were written when the
// format was made.
func TestFormat1IsReadForEver(t *testing.T) {
	rec, req := goldenRecord()
	data, err := encodeData(rec)
	if err != nil {
		t.Fatal(err)
	}
	raw := encodeRequest(req)
	for name, b := range map[string][]byte{"record-1.hex": data, "request-1.hex": raw} {
		file := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(file, []byte(hex.EncodeToString(b)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(string(bytes.TrimSpace(text)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, want) {
			t.Errorf("%s: what is written now differs; a change of the stored form needs a new format number", name)
		}
	}
	got, err := decodeData(rec.Ref, data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := encodeData(got)
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("reading and writing again gives other bytes (%v)", err)
	}
	gotReq, err := decodeRequest(rec.Ref, raw, rec.current().RequestSum)
	if err != nil || !bytes.Equal(encodeRequest(gotReq), raw) {
		t.Errorf("the request does not survive: %v", err)
	}
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	rec, req := goldenRecord()
	data, err := encodeData(rec)
	if err != nil {
		t.Fatal(err)
	}
	raw := encodeRequest(req)
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 1 << (i % 8)
		if _, err := decodeData(rec.Ref, bad); err == nil {
			t.Fatalf("a flipped bit in byte %d of the record is not noticed", i)
		}
		if _, err := decodeData(rec.Ref, data[:i]); err == nil {
			t.Fatalf("a record cut to %d bytes is not noticed", i)
		}
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 1 << (i % 8)
		if _, err := decodeRequest(rec.Ref, bad, rec.current().RequestSum); err == nil {
			t.Fatalf("a flipped bit in byte %d of the request is not noticed", i)
		}
	}
	other := Ref{Scope: "acct_1order", Name: "-8123/charge"}
	if _, err := decodeData(other, data); err == nil {
		t.Error("a record passes for another ref's")
	}
	if _, err := decodeRequest(other, raw, rec.current().RequestSum); err == nil {
		t.Error("a request passes for another ref's")
	}
}

func TestALaterFormatIsNotGuessedAt(t *testing.T) {
	rec, _ := goldenRecord()
	data, err := encodeData(rec)
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Clone(data[:len(data)-32])
	body[3] = format + 1
	sum := sumOf(rec.Ref, "record", body)
	if _, err := decodeData(rec.Ref, append(body, sum[:]...)); err == nil {
		t.Error("a record of a later format is read")
	}
}

func FuzzDecode(f *testing.F) {
	rec, req := goldenRecord()
	data, err := encodeData(rec)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, encodeRequest(req))
	f.Add([]byte("SKR\x01\xff\xff\xff\xff"), []byte("SKQ\x01\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data, raw []byte) {
		if r, err := decodeData(rec.Ref, data); err == nil {
			if _, err := encodeData(r); err != nil {
				t.Errorf("what was read cannot be written: %v", err)
			}
		}
		// The checksum would stop nearly all inputs: give each its own.
		if len(data) > 40 {
			body := bytes.Clone(data[:len(data)-32])
			sum := sumOf(rec.Ref, "record", body)
			if r, err := decodeData(rec.Ref, append(body, sum[:]...)); err == nil {
				v := view{rec: r, now: at(0), trusted: true, timeout: time.Second, unknown: time.Hour, terms: r.current().Terms.terms()}
				v.fold() // whatever was stored, it has a state
			}
		}
		sum := sumOf(rec.Ref, "request", raw)
		if r, err := decodeRequest(rec.Ref, raw, sum[:]); err == nil && bytes.Equal(raw[:4], []byte("SKQ\x01")) {
			if _, err := decodeRequest(rec.Ref, encodeRequest(r), sumOfBytes(rec.Ref, encodeRequest(r))); err != nil {
				t.Errorf("what was read cannot be written: %v", err)
			}
		}
	})
}

func sumOfBytes(ref Ref, b []byte) []byte {
	sum := sumOf(ref, "request", b)
	return sum[:]
}
