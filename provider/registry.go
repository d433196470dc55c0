package provider

// All returns the profiles that come with this package, by name, in a slice of
// the caller's own. Those of [Draft] are not among them: what they promise is
// the caller's to say.
//
// A provider that lives in many places, such as Mastodon, is there without
// origins. Whoever sends with such a profile names the origin to the client, or
// makes the profile for one place ([Mastodon]).
func All() []Profile { return []Profile{made(mastodonSpec()), Stripe()} }

// Lookup returns the profile of All with this name, such as "stripe", and
// whether there is one. The name is that of keyring.Terms.Profile, so that it
// finds the profile of a stored intent.
func Lookup(name string) (Profile, bool) {
	for _, p := range All() {
		if p.Name() == name {
			return p, true
		}
	}
	return Profile{}, false
}

// made makes a profile of a spec that is not the caller's own. If there is
// something wrong with what the caller gave to it, Err reports that.
func made(s Spec) Profile {
	c, err := compile(s)
	if err != nil {
		return Profile{broken(err)}
	}
	return Profile{c}
}
