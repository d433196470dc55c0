package provider

import (
	"bytes"
	"net/url"
	"strings"
	"time"

	"github.com/samekey/samekey/keyring"
)

// Mastodon is the profile of one Mastodon server, given its origin, such as
// "https://mastodon.example". Each server is a world of its own: it knows
// nothing of a key that was sent to another one.
//
// A POST of a status acts once per key and account for one hour after success,
// whichever app or token posts. To a repeat it answers with the status as it is
// now, without any mark, and even if the text differs: only the comparison with
// the record keeps another text from passing for posted. Failures are not kept.
//
// A status with a scheduled_at is promised nothing: the key is meant to count
// there too, but was overlooked by servers of 2024. Nothing is promised for
// other endpoints either; their POSTs carry the key and get one send.
//
// The server notes the key after it has written the status. If it dies in
// between, the repeat posts again, and no client can prevent that. A 503 may
// mean that the first attempt still runs, or anything else; it is read as doubt.
// A server of 2026 answered 500 to each repeat of a post that exists
// (mastodon/mastodon#40399).
//
// To look without sending: list the account's statuses and compare.
//
// An origin that makes no sense gives a profile whose Err reports
// keyring.ErrInvalid. Servers of other makes that speak this API may not keep
// its promises.
func Mastodon(origin string) Profile {
	s := mastodonSpec()
	s.Origins = []string{origin}
	return made(s)
}

func mastodonSpec() Spec {
	return Spec{
		Name: "mastodon",
		Endpoints: []Endpoint{{
			// docs.joinmastodon.org, methods/statuses, read 2026-11.
			Pattern: "POST /api/v1/statuses",
			// The same page, read 2026-11: a status, posted or scheduled, has an id.
			SuccessAt: "/id",
			Terms: keyring.Terms{
				Dedup: keyring.DedupKey,
				// The same page, and post_status_service.rb, read 2026-11. It is
				// counted from the success; we count from the first attempt, which is
				// the earlier one.
				Retention: time.Hour,
				// app/services/post_status_service.rb, read 2026-11: only a success is
				// noted, so that a refusal says nothing about an earlier attempt. A
				// repeat while the first one runs is told 503
				// (app/models/concerns/lockable.rb), which has no code to know it by:
				// attempts stay spaced.
				KeepsRefusals: false,
				MarksRunning:  false,
			},
			TermsIf: unscheduled,
		}},
	}
}

const scheduledAt = "scheduled_at"

// unscheduled says whether the request provably asks for a status at once.
// mastodon/mastodon#30039 (2024-04; mended by #30084): with a scheduled_at each
// repeat scheduled another status, and a client cannot tell which servers still
// do so. What cannot be read may be scheduled.
func unscheduled(r keyring.Request) bool {
	u, err := url.Parse(r.URL)
	if err != nil || !withoutDate(u.RawQuery) || len(r.Header["Content-Encoding"]) > 0 {
		return false
	}
	switch mediaType(r.Header) {
	case "":
		return len(r.Body) == 0
	case "application/json":
		doc := look(r.Body, []pointer{{scheduledAt}})
		if doc == nil {
			return false
		}
		place := doc.members[scheduledAt]
		return place.seen == 0 || place.seen == 1 && !place.there
	case "application/x-www-form-urlencoded":
		return withoutDate(string(r.Body))
	case "multipart/form-data":
		// Names stand here as they are. A text that has the word in it is
		// mistaken for a date, and costs a look.
		return !bytes.Contains(r.Body, []byte(scheduledAt))
	}
	return false
}

// withoutDate says whether a form has no value for scheduled_at, in any of the
// spellings with brackets that servers take for it.
func withoutDate(form string) bool {
	fields, err := url.ParseQuery(form)
	if err != nil {
		return false
	}
	for name, values := range fields {
		if strings.Contains(name, scheduledAt) && strings.Join(values, "") != "" {
			return false
		}
	}
	return true
}
