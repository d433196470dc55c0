package provider

import (
	"fmt"
	"strings"

	"github.com/samekey/samekey/keyring"
)

// Read says what an exchange tells about the attempt. It is pure.
//
// In this order, the first that applies:
//
//   - no answer: not processed if nothing was sent, else unclear;
//   - a rule with a code, the endpoint's before the profile's;
//   - with 400, 409, 422, 423 and 425, a code that is plain for itself:
//     conflict or pending;
//   - a rule without a code;
//   - the general table below.
//
// Rules and codes count only in genuine answers that were read whole. Genuine
// is an answer of an expected type, and one that has neither body nor type.
//
//	2xx, genuine, or without a body      done, if the endpoint's success rule agrees
//	  202                                pending, only a look helps; done if Endpoint.Accepted
//	  206; 207 without a success rule    unclear
//	  cut short, or not the JSON it says done and unreadable; unclear with a success rule
//	2xx, not genuine                     unclear
//	307, 308 with a Location             refused, in front of the look-up of the key
//	other 3xx                            unclear, only a look helps
//	404, 410 to a DELETE                 already
//	  404 without a body                 refused, in front
//	400, 402, 404, 405, 406, 410 to 415,
//	422, 501                             refused, in front
//	  any of these not genuine, or
//	  not read whole                     unclear
//	401, 403, 407                        not processed, sign-in needed
//	429                                  not processed
//	  without de-duplication             unclear, unless a rule vouches
//	408, 409, 423, 425                   unclear
//	5xx                                  unclear
//	  with the replay mark               unclear, only a look helps
//	anything else                        unclear
//
// A refusal with the replay mark is not in front: it was kept under the key.
//
// Last comes the provider's advice on sending again: "false" sets NoResend;
// "true", in a genuine answer from 400 on, clears it, and makes a refusal
// unclear.
//
// The verdict's ids and code have at most 128 characters, and Why quotes
// nothing of a body. RetryAfter is at most a day; what is no whole number of
// seconds and no HTTP date is none.
func (p Profile) Read(x Exchange) keyring.Verdict {
	c := p.compiled()
	a := c.open(x)
	v := c.judge(a)

	v.Status = x.Status
	v.Replayed = a.replayed
	for _, name := range c.spec.RequestIDHeaders {
		if v.RequestID = visible(get(x.Header, name)); v.RequestID != "" {
			break
		}
	}
	now := x.Now
	if date, ok := httpDate(get(x.Header, "Date")); ok {
		v.Date, now = date, date
	}
	if v.Kind == keyring.VerdictDone {
		return v.Verdict
	}
	v.RetryAfter = retryAfter(x.Header, now)
	if v.Code == "" && len(a.codes) > 0 && x.Status >= 400 {
		v.Code = a.codes[0]
	}
	if v.Kind == keyring.VerdictNotProcessed && x.Status != 0 && a.dedup == keyring.DedupNone && !v.vouched {
		v.Kind = keyring.VerdictUnclear
		v.Why += "; without de-duplication a proxy may have sent it twice"
	}
	return c.advise(a, v.Verdict)
}

// reading is a verdict on its way.
type reading struct {
	keyring.Verdict
	vouched bool
}

func read(kind keyring.VerdictKind, why string, args ...any) reading {
	return reading{Verdict: keyring.Verdict{Kind: kind, Why: fmt.Sprintf(why, args...)}}
}

// onlyLook marks that sending again tells nothing new, or is unsafe.
func (r reading) onlyLook() reading {
	r.NoResend = true
	return r
}

// front marks a refusal as made in front of the look-up of the key.
func (r reading) front(yes bool) reading {
	r.Front = yes
	return r
}

func (c *compiled) judge(a answer) reading {
	switch {
	case a.Status == 0 && a.NotSent:
		return read(keyring.VerdictNotProcessed, "not sent")
	case a.Status == 0:
		return read(keyring.VerdictUnclear, "no answer")
	}
	r, ok := c.byCode(a)
	if !ok {
		r = c.byStatus(a)
	}
	if a.Status/100 == 2 {
		if r.Kind == keyring.VerdictDone {
			r = a.confirm(r)
		}
		if r.EffectID == "" && (r.Kind == keyring.VerdictDone || r.Kind == keyring.VerdictPending) {
			r.EffectID = a.doc.id(c.effectIDAt)
			if r.EffectID == "" && r.Kind == keyring.VerdictDone && !a.whole {
				r.EffectID = lookCut(a.Body, c.effectIDAt).id(c.effectIDAt)
			}
		}
	}
	return r
}

// byCode tries the rules and the codes that need none.
func (c *compiled) byCode(a answer) (reading, bool) {
	if !a.genuine || !a.whole {
		return reading{}, false
	}
	for _, list := range [][]rule{a.endpoint.rules, c.rules} {
		for _, r := range list {
			if r.Code != "" && r.fits(a.Status) {
				for _, code := range a.codes {
					if code == r.Code {
						out := r.read(a, code)
						out.Code = a.codes[0] // the most telling one stands first in CodeAt
						return out, true
					}
				}
			}
		}
	}
	for _, code := range a.codes {
		if kind, ok := known(a.Status, code); ok {
			r := read(kind, "%d, %v by its code", a.Status, kind)
			r.Code = code
			return r, true
		}
	}
	for _, list := range [][]rule{a.endpoint.rules, c.rules} {
		for _, r := range list {
			if r.Code == "" && r.fits(a.Status) {
				return r.read(a, ""), true
			}
		}
	}
	return reading{}, false
}

func (r rule) fits(status int) bool {
	return r.Status == status || r.Status == 0 && status/100 == 4
}

func (r rule) read(a answer, code string) reading {
	out := read(r.Kind, "%d, %v by the profile's rule", a.Status, r.Kind)
	out.Code, out.NoResend, out.SignIn, out.vouched = code, r.NoResend, r.SignIn, r.Vouched
	out.Front = r.Kind == keyring.VerdictRefused && (!r.ByOperation || a.empty) && !a.replayed
	out.EffectID = a.doc.id(r.effectIDAt)
	return out
}

// byStatus is the general table.
func (c *compiled) byStatus(a answer) reading {
	switch a.Status {
	case 307, 308:
		if to := location(a.Header); to != "" {
			return read(keyring.VerdictRefused, "redirect %d to %s, not followed", a.Status, to).front(true)
		}
	case 400, 402, 404, 405, 406, 410, 411, 412, 413, 414, 415, 422, 501:
		return refusal(a)
	case 401, 403, 407, 429:
		return c.door(a)
	case 408, 423, 425:
		return read(keyring.VerdictUnclear, "%d, the attempt may have arrived", a.Status)
	case 409:
		return read(keyring.VerdictUnclear, "409 without a code that is known: it may be about an effect of ours")
	}
	switch a.Status / 100 {
	case 2:
		return success(a)
	case 3:
		if to := location(a.Header); to != "" {
			return read(keyring.VerdictUnclear, "redirect %d to %s, not followed: the effect may exist", a.Status, to).onlyLook()
		}
		return read(keyring.VerdictUnclear, "redirect %d, not followed: the effect may exist", a.Status).onlyLook()
	case 5:
		if a.replayed {
			return read(keyring.VerdictUnclear, "%d, stored and repeated by the provider", a.Status).onlyLook()
		}
		return read(keyring.VerdictUnclear, "%d, the effect may exist", a.Status)
	}
	return read(keyring.VerdictUnclear, "status %d is not understood", a.Status)
}

const stranger = "not from the provider"

// success reads a 2xx, short of the endpoint's success rule.
func success(a answer) reading {
	switch {
	case !a.genuine:
		return read(keyring.VerdictUnclear, "%d, %s: %s", a.Status, stranger, a.odd())
	case a.Status == 202 && !a.endpoint.Accepted:
		return read(keyring.VerdictPending, "202, accepted: what becomes of it is yet to be seen").onlyLook()
	case a.Status == 206:
		return read(keyring.VerdictUnclear, "206, a part of an answer to something else")
	case a.Status == 207 && !a.endpoint.hasSuccessRule():
		return read(keyring.VerdictUnclear, "207, parts of it may have failed")
	}
	return read(keyring.VerdictDone, "%d", a.Status)
}

// confirm holds a Done of a 2xx against the body and the success rule. A
// status that says done is believed without its body, unless the profile says
// that the body decides.
func (a answer) confirm(r reading) reading {
	e := a.endpoint
	switch {
	case !a.whole && e.hasSuccessRule():
		r.Kind, r.Why = keyring.VerdictUnclear, fmt.Sprintf("%d, but the answer that would show the effect could not be read whole", a.Status)
	case !a.whole:
		r.Unreadable, r.Why = true, fmt.Sprintf("%d, but the answer could not be read whole", a.Status)
	case e.SuccessAt != "" && !a.doc.has(e.successAt), e.Success != nil && !e.Success(a.Exchange):
		r.Kind, r.Why = keyring.VerdictUnclear, fmt.Sprintf("%d, but the answer does not show the effect", a.Status)
	}
	return r
}

// refusal reads the statuses that say no. A validation, a router or a gateway
// with a bill of its own answers before the key is looked up; that the
// operation itself has refused is known of what the provider repeats, and where
// a rule says so.
func refusal(a answer) reading {
	switch {
	case !a.genuine:
		return read(keyring.VerdictUnclear, "%d, %s: %s", a.Status, stranger, a.odd())
	case !a.whole:
		return read(keyring.VerdictUnclear, "%d, but the answer could not be read whole: its code might say otherwise", a.Status)
	case a.Method == "DELETE" && (a.Status == 410 || a.Status == 404 && !a.empty):
		return read(keyring.VerdictAlready, "%d to a DELETE: it is not there", a.Status)
	case a.replayed:
		return read(keyring.VerdictRefused, "%d", a.Status)
	}
	return read(keyring.VerdictRefused, "%d, perhaps before the key was looked up", a.Status).front(true)
}

// odd says what is unexpected about the type of an answer.
func (a answer) odd() string {
	kind := mediaType(a.Header)
	switch {
	case kind == "":
		return "it has no Content-Type"
	case len(kind) > 60 || strings.ContainsFunc(kind, func(c rune) bool { return c < '!' || c > '~' }):
		return "its Content-Type is unexpected"
	}
	return "its Content-Type is " + kind + ", see Spec.MediaTypes"
}

// door reads the statuses of those who turn requests away at the door. Where a
// profile has codes for such a status, an answer whose code is lost may be one
// of them.
func (c *compiled) door(a answer) reading {
	if a.genuine && !a.whole && c.codesFor(a) {
		return read(keyring.VerdictUnclear, "%d, but the answer could not be read whole: its code might say otherwise", a.Status)
	}
	r := read(keyring.VerdictNotProcessed, "%d, turned away at the door", a.Status)
	r.SignIn = a.Status != 429
	return r
}

func (c *compiled) codesFor(a answer) bool {
	for _, list := range [][]rule{a.endpoint.rules, c.rules} {
		for _, r := range list {
			if r.Code != "" && r.fits(a.Status) {
				return true
			}
		}
	}
	return false
}

// advise follows the provider's own word on sending again. A conflict, a
// success and what is already so stay what they are.
func (c *compiled) advise(a answer, v keyring.Verdict) keyring.Verdict {
	if c.spec.AdviceHeader == "" {
		return v
	}
	switch strings.ToLower(get(a.Header, c.spec.AdviceHeader)) {
	case "false":
		v.NoResend = true
		v.Why += "; the provider advises against sending again"
	case "true":
		if a.Status < 400 || !a.genuine {
			break
		}
		v.NoResend = false
		if v.Kind == keyring.VerdictRefused {
			v.Kind, v.Front = keyring.VerdictUnclear, false
		}
		v.Why += "; the provider advises to send again"
	}
	return v
}
