// Package guest is a small emulated machine for tests of what the host cannot
// do: another kernel with cgroup v2 alone, file systems with project quota, no
// network at all, a reboot, a power cut.
//
// It is qemu without hardware support, so it runs wherever qemu does, as any
// user; a distribution's kernel, unpacked from its package; and a root file
// system in memory, made of busybox, a few programs of the host, and what is under
// test. Disks outlive the machine's ends, everything else is new at every
// boot. It is some ten times slower than its host: be generous with deadlines.
//
// A test asks with New and Machine.Boot, then Machine.Run. A person asks with
// "make guest".
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-dev/holdfast/test/guest/wire"
)

// bootTimeout bounds a boot with new disks. Five seconds are usual.
const bootTimeout = 5 * time.Minute

// ErrOff is returned by Run while the machine is off: not booted, or its power
// was cut.
var ErrOff = errors.New("the machine is off")

// Config describes a machine.
type Config struct {
	// Dir holds the disks and the console's log. It must exist.
	Dir string
	// Files is what the machine has beside the usual: absolute path in the
	// machine → file or folder on the host.
	Files map[string]string
	// Disks outlive a reboot and a power cut. Their devices are /dev/vda, vdb ….
	Disks []wire.Disk
	// MemoryMiB includes the root file system; default 2048.
	MemoryMiB int
}

// A Machine is one emulated machine. Its methods are for one goroutine at a
// time.
type Machine struct {
	cfg    Config
	kernel kernel
	image  string

	// While it runs:
	qemu    *exec.Cmd
	stdin   io.WriteCloser
	answers chan wire.Answer // closed when the machine has ended
	ended   chan error       // qemu's own end, once
}

// New prepares a machine: the first time it downloads the kernel's package and
// builds the root file system. Nothing runs yet.
func New(ctx context.Context, cfg Config) (*Machine, error) {
	if cfg.MemoryMiB == 0 {
		cfg.MemoryMiB = 2048
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	m := &Machine{cfg: cfg}
	if m.kernel, err = fetchKernel(ctx, cache); err != nil {
		return nil, fmt.Errorf("the machine's kernel: %w", err)
	}
	initProgram := filepath.Join(cfg.Dir, "init")
	if err := Compile(ctx, initProgram, "build", "github.com/holdfast-dev/holdfast/test/guest/init"); err != nil {
		return nil, err
	}
	img, err := newImage(ctx, m.kernel, initProgram, cfg.Files)
	if err == nil {
		m.image, err = img.build(cache)
	}
	if err != nil {
		return nil, fmt.Errorf("the machine's root file system: %w", err)
	}
	for i, disk := range cfg.Disks {
		if err := makeDisk(m.disk(i), disk); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Fetch downloads what New would download, so that it needs no network later.
func Fetch(ctx context.Context) error {
	cache, err := cacheDir()
	if err == nil {
		_, err = fetchKernel(ctx, cache)
	}
	return err
}

// cacheDir returns the folder of what is the same for every machine.
func cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	return filepath.Join(user, "holdfast-guest"), err
}

// Compile builds a static program for the machine with "go build", or with "go
// test -c" a package's tests.
func Compile(ctx context.Context, program string, args ...string) error {
	// Without what debuggers want, it is linked, copied and loaded sooner.
	words := append(append([]string{}, args[:len(args)-1]...), "-ldflags=-s -w", "-o", program, args[len(args)-1])
	cmd := exec.CommandContext(ctx, "go", words...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(words, " "), err, out)
	}
	return nil
}

func makeDisk(path string, disk wire.Disk) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(int64(disk.MiB)<<20), f.Close()) // sparse
}

func (m *Machine) disk(i int) string { return filepath.Join(m.cfg.Dir, fmt.Sprintf("disk%d.img", i)) }

// ConsoleLog is the file with what the machine's kernel and first program say,
// of this boot and those before.
func (m *Machine) ConsoleLog() string { return filepath.Join(m.cfg.Dir, "console.log") }

// Boot starts the machine and returns when it takes requests. It ends with
// CutPower, and with ctx.
func (m *Machine) Boot(ctx context.Context) error {
	log, err := os.OpenFile(m.ConsoleLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(m.arguments(), "-append", m.parameters("loglevel=5"),
		"-chardev", "file,id=console,append=on,path="+m.ConsoleLog(), "-serial", "chardev:console",
		"-chardev", "stdio,id=control,signal=off", "-device", "virtio-serial-pci",
		"-device", "virtserialport,chardev=control,name="+wire.Port)...)
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if m.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	m.qemu, m.answers, m.ended = cmd, make(chan wire.Answer), make(chan error, 1)
	// Ends with qemu; whoever stops it takes what is still sent.
	go read(stdout, m.answers, func() { m.ended <- cmd.Wait() })

	timer := time.NewTimer(bootTimeout)
	defer timer.Stop()
	select {
	case answer, ok := <-m.answers:
		if ok && answer.Ready {
			return nil
		}
		err = fmt.Errorf("the machine ended while it booted: %w", m.off())
	case <-timer.C:
		err = fmt.Errorf("the machine did not boot within %v: %w", bootTimeout, m.CutPower())
	}
	return m.withConsole(err)
}

// read hands on what the machine says until it has ended.
func read(from io.Reader, to chan<- wire.Answer, wait func()) {
	defer close(to)
	defer wait()
	for in := json.NewDecoder(from); ; {
		var answer wire.Answer
		if err := in.Decode(&answer); err != nil {
			return
		}
		to <- answer
	}
}

// arguments returns qemu's, without those of the console.
func (m *Machine) arguments() []string {
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none",
		"-accel", "tcg,thread=multi", "-cpu", "max,la57=off", "-smp", "2", "-m", strconv.Itoa(m.cfg.MemoryMiB),
		"-kernel", m.kernel.image, "-initrd", m.image, "-device", "virtio-rng-pci",
	}
	for i := range m.cfg.Disks {
		// What the machine wrote is in the host's memory at least, so a killed
		// qemu loses what the machine's kernel had not written yet, and no more.
		args = append(args, "-drive", "if=virtio,format=raw,cache=writeback,file="+m.disk(i))
	}
	return args
}

// parameters returns the kernel's.
func (m *Machine) parameters(more string) string {
	disks, err := wire.DisksParameter(m.cfg.Disks)
	if err != nil {
		panic(err) // text and numbers always encode
	}
	return "console=ttyS0 panic=-1 " + disks + " " + more
}

// withConsole adds the end of the console's log to an error.
func (m *Machine) withConsole(err error) error {
	data, readErr := os.ReadFile(m.ConsoleLog())
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	const enough = 4000
	if len(data) > enough {
		data = data[len(data)-enough:]
	}
	return fmt.Errorf("%w\nconsole:\n%s", err, data)
}
