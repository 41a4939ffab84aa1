// Takes the place of go-hep's cxx_server_test.go, which names a server on the Internet: its suite then runs against the server at
// TOWPATH_ADDRESS, and expects /tmp/dir1/file1.txt to have the id and the time in TOWPATH_FILE_ID and TOWPATH_FILE_TIME.

package xrootd

import (
	"os"
	"strconv"
)

func init() {
	testClientAddrs = append(testClientAddrs, os.Getenv("TOWPATH_ADDRESS"))
	fstest["/tmp/dir1/file1.txt"].ID = number("TOWPATH_FILE_ID")
	fstest["/tmp/dir1/file1.txt"].Mtime = number("TOWPATH_FILE_TIME")
}

func number(variable string) int64 {
	value, err := strconv.ParseInt(os.Getenv(variable), 10, 64)
	if err != nil {
		panic(variable + ": " + err.Error())
	}
	return value
}
