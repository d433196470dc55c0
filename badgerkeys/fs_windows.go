package badgerkeys

import (
	"io/fs"

	"golang.org/x/sys/windows"
)

// syncDir does nothing: directories cannot be flushed on Windows, and NTFS
// journals names by itself.
func syncDir(string) error { return nil }

// loose is always false: access is not in the mode on Windows, and directories
// below the user's profile are the user's own.
func loose(fs.FileInfo) bool { return false }

// diskFree returns how many bytes the user can still write below dir. Tests
// replace it.
var diskFree = func(dir string) (uint64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, &fs.PathError{Op: "free space", Path: dir, Err: err}
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(path, &free, nil, nil); err != nil {
		return 0, &fs.PathError{Op: "free space", Path: dir, Err: err}
	}
	return free, nil
}
