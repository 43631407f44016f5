// A client of Strand's pack4 door. It has no RESP parser: it sends each command in a frame, and prints the replies as they come.
// usage: go run client.go HOST:PORT COMMAND... (each COMMAND a quoted line: 'SET k v' 'GET k')
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
)

// check ends the program at an error.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	conn, err := net.Dial("tcp", os.Args[1])
	check(err)
	var frames []byte // One frame for each command. One write sends all frames.
	for _, command := range os.Args[2:] {
		frames = binary.BigEndian.AppendUint32(frames, uint32(len(command)))
		frames = append(frames, command...)
	}
	_, err = conn.Write(frames)
	check(err)
	for range os.Args[2:] {
		var length uint32
		check(binary.Read(conn, binary.BigEndian, &length))
		_, err = io.CopyN(os.Stdout, conn, int64(length))
		check(err)
	}
}
