//go:build unix

package badgerkeys

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

// loose says whether others than the owner may do anything with the file.
func loose(info fs.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }

// diskFree returns how many bytes a process without privileges can still
// write below dir. Tests replace it.
var diskFree = func(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
