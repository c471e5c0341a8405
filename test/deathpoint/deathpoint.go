// Package deathpoint kills a process before a chosen one of the system calls
// by which it changes files and mounts, so that a test can show what the next
// process makes of it, whatever step the last one died at. Nothing of the
// product knows of it.
//
// The process is the test's own binary, started again: it calls [Arm] before
// the work, and from then on each of its changing calls, and of the programs
// that it runs, waits for the test's word (a seccomp filter with user
// notification; root). The test counts them: [Config.Before] says which one is
// never made. What the kernel does between two calls cannot be cut, and no more
// could kill -9.
package deathpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// armFD is where the process finds the socket on which it hands over the listener.
const armFD = 3

// Config says what is run and when it dies.
type Config struct {
	Cmd *exec.Cmd // the process; its ExtraFiles are set by Run
	// Dir: what is written to files elsewhere is not counted.
	Dir string
	// Before is the number of the call, from 0, that is not made; negative: all are.
	Before int
}

// A Result says how a process ended.
type Result struct {
	Steps []string // each changing call that it made, and the one that it died before
	Died  bool     // before the call that was chosen; otherwise it ended by itself
}

// Run starts the process and returns when it and all that it started have
// ended. The error is what went wrong with watching it, or how it ended where
// it did not die at the chosen call.
func Run(cfg Config) (Result, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Result{}, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "listener"), os.NewFile(uintptr(pair[1]), "arm")
	defer ours.Close()
	cfg.Cmd.ExtraFiles = []*os.File{theirs}
	cfg.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = errors.Join(cfg.Cmd.Start(), theirs.Close())
	if err != nil {
		return Result{}, err
	}
	result, err := watch(cfg, ours)
	if err != nil || result.Died {
		_ = syscall.Kill(-cfg.Cmd.Process.Pid, syscall.SIGKILL) // with the programs that it runs
	}
	ended := cfg.Cmd.Wait()
	if result.Died {
		ended = nil
	}
	return result, errors.Join(err, ended)
}

// watch lets calls pass until the chosen one, or until the process ends.
func watch(cfg Config, socket *os.File) (Result, error) {
	listener, err := receive(socket)
	if err != nil {
		return Result{}, err // it ended before it was armed
	}
	defer func() { _ = unix.Close(listener) }() // nothing was written there
	var result Result
	for {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return result, fmt.Errorf("wait for a system call: %w", err)
		}
		if fds[0].Revents&unix.POLLIN == 0 {
			return result, nil // nobody is left who could call
		}
		var call notification
		if err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&call)); err != nil {
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
				continue // whoever called is gone
			}
			return result, fmt.Errorf("receive a system call: %w", err)
		}
		if step, counts := call.describe(cfg.Dir); counts {
			result.Steps = append(result.Steps, step)
			if len(result.Steps)-1 == cfg.Before {
				result.Died = true
				return result, nil
			}
		}
		answer := response{id: call.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if err := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)); err != nil && !errors.Is(err, unix.ENOENT) {
			return result, fmt.Errorf("let a system call pass: %w", err)
		}
	}
}

// receive takes the listener from the process.
func receive(socket *os.File) (int, error) {
	var oob [64]byte
	for {
		_, n, _, _, err := unix.Recvmsg(int(socket.Fd()), make([]byte, 1), oob[:], unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return -1, fmt.Errorf("receive the listener: %w", err)
		}
		messages, err := unix.ParseSocketControlMessage(oob[:n])
		if err != nil {
			return -1, err
		}
		if len(messages) == 0 {
			return -1, errors.New("the process ended before it called Arm")
		}
		fds, err := unix.ParseUnixRights(&messages[0])
		if err != nil {
			return -1, err
		}
		return fds[0], nil
	}
}

// Arm has every changing call of this process, in all its threads and in the
// programs that it starts, wait for the test from here on.
func Arm() error {
	filter := program()
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	flags := unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags), uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("install the filter: %w", errno)
	}
	if err := unix.Sendmsg(armFD, []byte{0}, unix.UnixRights(int(fd)), nil, 0); err != nil {
		return fmt.Errorf("hand over the listener: %w", err)
	}
	return errors.Join(unix.Close(int(fd)), unix.Close(armFD))
}

// program is the filter: the calls of the table wait, all others pass.
func program() []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		has    = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
		third  = 16 + 2*8 // where struct seccomp_data has the low half of the third argument
	)
	filter := []unix.SockFilter{{Code: load, K: 0}}
	for nr := range calls() {
		filter = append(filter,
			unix.SockFilter{Code: equal, K: uint32(nr), Jf: 1},
			unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	return append(filter,
		unix.SockFilter{Code: equal, K: unix.SYS_OPENAT, Jf: 3},
		unix.SockFilter{Code: load, K: third},
		unix.SockFilter{Code: has, K: unix.O_CREAT | unix.O_TRUNC, Jf: 1},
		unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_USER_NOTIF},
		unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
}

// notification is struct seccomp_notif.
type notification struct {
	id   uint64
	pid  uint32
	_    uint32 // flags
	nr   int32
	_    uint32 // architecture
	_    uint64 // instruction pointer
	args [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	_     int64 // value, where the call is not made
	_     int32 // error, where the call is not made
	flags uint32
}

// describe returns the call for people, and whether it changes anything that counts.
func (n *notification) describe(dir string) (step string, counts bool) {
	if n.nr == unix.SYS_OPENAT {
		return "openat " + n.text(1), true
	}
	c := calls()[uintptr(n.nr)]
	if c.fd {
		file, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, n.args[0]))
		return c.name + " " + file, !c.data || strings.HasPrefix(file, dir)
	}
	return c.name + " " + n.text(c.path), true
}

// text reads a path that an argument of the call points to.
func (n *notification) text(arg int) string {
	memory, err := os.Open("/proc/" + strconv.Itoa(int(n.pid)) + "/mem")
	if err != nil {
		return ""
	}
	defer memory.Close()
	var buf [256]byte
	got, err := memory.ReadAt(buf[:], int64(n.args[arg]))
	if err != nil && !errors.Is(err, io.EOF) && got == 0 {
		return ""
	}
	text, _, _ := bytes.Cut(buf[:got], []byte{0})
	return string(text)
}

func ioctl(fd int, request uintptr, data unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(data)); errno != 0 {
		return errno
	}
	return nil
}
