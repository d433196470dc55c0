package badgerkeys

import (
	"fmt"

	"github.com/samekey/samekey/keyring"
)

// whatNow ends the text of an error about a keyring that is not whole.
const whatNow = "leave the directory as it is, and put no older copy in its place, which would send again what was sent since; look at the provider's side for what was open, see docs/operations.md"

// lost reports what is missing.
func lost(format string, args ...any) error {
	return fmt.Errorf("%w: "+format+"; "+whatNow, append([]any{keyring.ErrLost}, args...)...)
}

// named says which package an error comes from. Each exported method does it
// once, with what it reports.
func named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("badgerkeys: %w", err)
}

// usable reports ErrInvalid for a store that no open has returned.
func (s *Store) usable() error {
	if s == nil || s.db == nil {
		return fmt.Errorf("%w: the store is nil; look at the error of Open", keyring.ErrInvalid)
	}
	return nil
}
