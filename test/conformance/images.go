package conformance

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/ociimage"
)

// Programs are what the images of upstream's tests are made of.
type Programs struct {
	Agnhost    string // upstream's program of most test images, static
	NoNewPrivs string // upstream's program of the image nonewprivs, static
	Pause      string // Holdfast's demo program, static
	Fetch      string // stands in for curl and wget
	Busybox    string // a static busybox: the host's
	// Certificate is the folder of localhost.crt and localhost.key, which
	// agnhost serves TLS with.
	Certificate string
}

// upstreams is where upstream's tests have their images from.
const upstreams = "registry.k8s.io/e2e-test-images/"

// Images returns the images that the tests name, under upstream's names and as
// far as the tests look with what upstream's images hold. Debian's busybox, a
// static program, stands in for the distributions below them.
func Images(ctx context.Context, p Programs) ([]ociimage.Image, error) {
	box, err := boxFiles(ctx, p)
	if err != nil {
		return nil, err
	}
	agnhost, err := program(p.Agnhost)
	if err != nil {
		return nil, err
	}
	nnp, err := program(p.NoNewPrivs)
	if err != nil {
		return nil, err
	}
	nnp.Mode |= fs.ModeSetuid | fs.ModeSetgid
	var cert [2]ociimage.File
	for i, name := range []string{"localhost.crt", "localhost.key"} {
		content, err := os.ReadFile(filepath.Join(p.Certificate, name))
		if err != nil {
			return nil, err
		}
		cert[i] = ociimage.File{Mode: 0o644, Content: content}
	}
	demo, err := program(p.Pause)
	if err != nil {
		return nil, err
	}
	path := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	pause := ociimage.Image{
		Refs:  []string{"registry.k8s.io/pause:3.10.2"},
		Files: map[string]ociimage.File{"/pause": demo}, Entrypoint: []string{"/pause", "pause"}, Env: path, User: "65535:65535",
	}
	private, err := registryFiles("pause", "testing", pause)
	if err != nil {
		return nil, err
	}
	with := func(more map[string]ociimage.File) map[string]ociimage.File {
		files := maps.Clone(box)
		maps.Copy(files, more)
		return files
	}
	agnhostFiles := with(map[string]ociimage.File{
		"/agnhost":       agnhost,
		"/agnhost-2":     link("agnhost"),
		"/uploads":       folder(0o755),
		"/localhost.crt": cert[0], "/localhost.key": cert[1],
		"/bin/bash": text(0o755, "#!/bin/sh\nexec /bin/sh \"$@\"\n"),
		"/etc/passwd": text(0o644, passwd+
			"user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"),
		"/etc/group": text(0o644, group+
			"user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"),
	})
	maps.Copy(agnhostFiles, private)
	agnhostImage := ociimage.Image{Files: agnhostFiles, Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}
	shell := ociimage.Image{Files: box, Cmd: []string{"sh"}}
	nginx := ociimage.Image{ // what the tests want of it is a server on its port
		Files: with(map[string]ociimage.File{"/agnhost": agnhost}), Cmd: []string{"/agnhost", "netexec", "--http-port=80", "--udp-port=-1"},
	}
	nonroot := shell
	nonroot.User = "1234"
	images := []ociimage.Image{pause}
	for ref, image := range map[string]ociimage.Image{
		"agnhost:2.55": agnhostImage, "agnhost:2.66.1": agnhostImage,
		"busybox:1.37.0-2": shell, "glibc-dns-testing:2.1.1": shell, "nonroot:1.5": nonroot,
		"nonewprivs:1.4": {Files: with(map[string]ociimage.File{"/usr/local/bin/nnp": nnp}), Cmd: []string{"nnp"}},
		"nginx:1.27.0-2": nginx, "nginx:1.28.0-2": nginx,
	} {
		image.Refs, image.Env = []string{upstreams + ref}, path
		// One content would be one image, and a runtime says any of its names.
		image.Files = maps.Clone(image.Files)
		image.Files["/etc/image"] = text(0o644, ref+"\n")
		images = append(images, image)
	}
	return images, nil
}

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
	group  = "root:x:0:\nnobody:x:65534:\n"
	// nmeter is a program of busybox that Debian's lacks. The tests ask it for the
	// time of day, once: -d0 '%3t'.
	nmeter = `#!/bin/sh
now=$EPOCHREALTIME
part=${now#*.}
exec date -u -d @${now%.*} +%T.${part%???}
`
)

// boxFiles returns the files of an image with busybox in it, under the name of
// each of its programs.
func boxFiles(ctx context.Context, p Programs) (map[string]ociimage.File, error) {
	box, err := program(p.Busybox)
	if err != nil {
		return nil, err
	}
	fetch, err := program(p.Fetch)
	if err != nil {
		return nil, err
	}
	names, err := exec.CommandContext(ctx, p.Busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("programs in %s: %w", p.Busybox, err)
	}
	files := map[string]ociimage.File{
		"/bin/busybox": box,
		"/bin/nmeter":  text(0o755, nmeter),
		"/bin/curl":    fetch,
		"/bin/wget":    link("curl"),
		"/usr/bin":     link("../bin"),
		"/usr/sbin":    link("../bin"),
		"/sbin":        link("bin"),
		"/root":        folder(0o700),
		"/home":        folder(0o755),
		"/tmp":         folder(0o777 | fs.ModeSticky),
		"/var/tmp":     folder(0o777 | fs.ModeSticky),
		"/etc/passwd":  text(0o644, passwd),
		"/etc/group":   text(0o644, group),
	}
	for name := range strings.FieldsSeq(string(names)) {
		if _, ours := files["/bin/"+name]; !ours {
			files["/bin/"+name] = link("busybox")
		}
	}
	return files, nil
}

// program reads a static program.
func program(path string) (ociimage.File, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return ociimage.File{}, err
	}
	parsed, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return ociimage.File{}, fmt.Errorf("program %s: %w", path, err)
	}
	for _, segment := range parsed.Progs {
		if segment.Type == elf.PT_INTERP {
			return ociimage.File{}, fmt.Errorf("program %s is not static", path)
		}
	}
	return ociimage.File{Mode: 0o755, Content: content}, nil
}

func link(to string) ociimage.File {
	return ociimage.File{Mode: fs.ModeSymlink | 0o777, Content: []byte(to)}
}

func folder(mode fs.FileMode) ociimage.File { return ociimage.File{Mode: fs.ModeDir | mode} }

func text(mode fs.FileMode, content string) ociimage.File {
	return ociimage.File{Mode: mode, Content: []byte(content)}
}

// writeImages writes each image as an archive into a folder.
func writeImages(dir string, images []ociimage.Image) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, image := range images {
		name := image.Refs[0]
		name = strings.ReplaceAll(name[strings.LastIndex(name, "/")+1:], ":", "-")
		if err := writeImage(filepath.Join(dir, name+".tar"), image); err != nil {
			return err
		}
	}
	return nil
}

func writeImage(path string, image ociimage.Image) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = ociimage.Build(f, image)
	return err
}
