package provider

// Lists says whether an endpoint of the profile fits such a request. For one
// that none fits nothing is promised: it is sent once.
func (p Profile) Lists(method, rawURL string) bool {
	return p.compiled().endpoint(method, rawURL).listed()
}

// listed tells an endpoint of the profile from the empty one.
func (e *endpoint) listed() bool { return e.Pattern != "" }
