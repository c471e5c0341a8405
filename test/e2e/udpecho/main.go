// Command udpecho sends every UDP packet that comes in on port 7 back to its
// sender, with the name of this host in front.
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, echo())
	os.Exit(1)
}

// echo answers until something fails.
func echo() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	conn, err := net.ListenPacket("udp", ":7") //nolint:noctx // it never ends
	if err != nil {
		return err
	}
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo([]byte(name+" "+string(buf[:n])), from); err != nil {
			return err
		}
	}
}
