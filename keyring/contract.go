package keyring

import (
	"fmt"

	"github.com/samekey/samekey/internal/canon"
)

// Contract says where the key goes into a request.
type Contract struct {
	// Place returns the request with the key in it. It is called once, before
	// the record is written; the request that it returns is what is stored and
	// sent ever after. It must not change the request it is given. Nil places no
	// key.
	Place func(Request, Key) (Request, error)
	// Credentials names headers and query parameters that are credentials,
	// beside those that are recognised. They are not stored and not compared.
	Credentials []string
}

// Draft is what an intent is begun with.
type Draft struct {
	Request  Request
	Terms    Terms
	Contract Contract
	// Key is the caller's own; zero has one minted. Where the ref is on record
	// with another key, that is a difference.
	Key Key
	// Identity names the credential in use, never the secret; see Current. It is
	// not compared.
	Identity string
}

// Current is what holds at the moment of sending.
type Current struct {
	// Terms are what the provider promises now. Of those and the ones on record
	// the stricter hold.
	Terms Terms
	// Identity names the credential in use, never the secret. Where an attempt
	// that may have had an effect was made under another one, nothing is sent
	// without a look: many providers keep keys apart by credential, and would
	// not recognise this one. Empty: not told, and not checked.
	Identity string
}

// shape is a draft made ready for storing and for comparing.
type shape struct {
	request     Request // without credentials, key not yet placed
	parts       []canon.Part
	fingerprint Fingerprint
	needs       []string // places that held credentials
}

// shape checks the draft and takes out what may not be stored. The draft's
// bytes are copied.
func (d Draft) shape(form uint8) (shape, error) {
	if err := d.Request.check(); err != nil {
		return shape{}, err
	}
	switch d.Terms.Dedup {
	case DedupNone, DedupKey, DedupNatural:
	default:
		return shape{}, fmt.Errorf("%w: the terms' Dedup is not one of DedupNone, DedupKey, DedupNatural", ErrInvalid)
	}
	if err := checkIdentity(d.Identity); err != nil {
		return shape{}, err
	}
	if d.Terms.Retention < 0 || d.Terms.Margin < 0 || d.Terms.Spacing < 0 || d.Terms.Settle < 0 {
		return shape{}, fmt.Errorf("%w: the terms hold a negative duration", ErrInvalid)
	}
	clean, taken, err := canon.Strip(canon.Request(d.Request.clone()), canon.NamesOf(d.Contract.Credentials))
	if err != nil {
		return shape{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	parts, err := canon.Parts(form, clean, taken.Parts()...)
	if err != nil {
		return shape{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return shape{
		request:     Request(clean),
		parts:       parts,
		fingerprint: Fingerprint{form: form, sum: canon.Sum(form, parts)},
		needs:       taken.Names(),
	}, nil
}

func checkIdentity(s string) error {
	if _, err := normal("identity", s); err != nil {
		return fmt.Errorf("%w: the identity has control characters, invalid UTF-8 or more than %d bytes", ErrInvalid, MaxRef)
	}
	return nil
}

// place puts the key where it goes. What comes back must still be a request
// that can be sent.
func (c Contract) place(r Request, k Key) (Request, error) {
	if c.Place == nil {
		return r, nil
	}
	placed, err := c.Place(r.clone(), k)
	if err != nil {
		return Request{}, fmt.Errorf("the key cannot be placed: %w", err)
	}
	if err := placed.check(); err != nil {
		return Request{}, err
	}
	return placed.clone(), nil
}
