package keyring

// CountMints counts the keys that are minted until the returned function is
// called.
func CountMints(n *int) (restore func()) {
	old := mint
	mint = func() (Key, error) { *n++; return old() }
	return func() { mint = old }
}

// FailMints makes the random source fail.
func FailMints(err error) (restore func()) {
	old := mint
	mint = func() (Key, error) { return Key{}, err }
	return func() { mint = old }
}
