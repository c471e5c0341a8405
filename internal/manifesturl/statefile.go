package manifesturl

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/holdfast-dev/holdfast/internal/atomicfile"
	"github.com/holdfast-dev/holdfast/internal/manifest"
)

// stateVersion is the version of the state file.
const stateVersion = 1

// stateFile is the last good copy, on disk.
type stateFile struct {
	Version    int             `json:"version"`
	Address    string          `json:"address"`
	Answered   time.Time       `json:"answered,omitzero"` // when the file was written
	validators                 // of an answer that was good as a whole
	Documents  []savedDocument `json:"documents"`
	// Signed are the answers that documents in force are from, where answers are
	// signed.
	Signed []*signed `json:"signed,omitempty"`
}

type savedDocument struct {
	File    string          `json:"file"`
	Line    int             `json:"line"`
	Written json.RawMessage `json:"written"`
	Signed  *int            `json:"signed,omitempty"` // index of Signed
}

// errNewer is returned for a state file that this release cannot read.
var errNewer = errors.New("start the release that wrote it, or delete the file if the URL answers well")

// restore brings back the last good copy. What cannot be used is logged: then
// nothing is known until the URL answers. The error is errNewer, if any.
func (u *URL) restore() error {
	if u.cfg.StateFile == "" {
		return nil
	}
	saved, inForce, err := u.load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errNewer):
		return err
	case err != nil:
		u.log.Warn("the last good copy is not used; what runs stays until the URL answers", "err", err)
		return nil
	}
	u.state = state{inForce: inForce, known: true}
	u.state = u.state.finish(state{}, time.Time{})
	if saved.Address == u.address {
		u.known = saved.validators
	}
	if data, err := u.cfg.Source.keyFile(); err == nil {
		u.keySum = sha256.Sum256(data)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	s := &u.mu.state
	s.Set, s.Restored, s.LastGood, s.ETag = u.state.set, true, saved.Answered, u.known.ETag
	return nil
}

// Saved returns what a state file remembers, for a node that no process runs: the
// documents, their address and when it last answered. Without a file nothing is
// known.
func Saved(path string, parser *manifest.Parser) (State, error) {
	s, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, err
	}
	saved := State{Address: s.Address, Restored: true, LastGood: s.Answered, ETag: s.ETag, Set: Set{Known: true}}
	for _, sd := range s.Documents {
		d, err := parser.Restore(sd.File, sd.Line, sd.Written)
		if err != nil {
			return State{}, fmt.Errorf("%s: %w", path, err)
		}
		saved.Documents = append(saved.Documents, d)
	}
	return saved, nil
}

func read(path string) (stateFile, error) {
	var s stateFile
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	// The version first: what follows is its own.
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	if head.Version > stateVersion {
		return s, fmt.Errorf("%s has version %d, and this release reads %d: %w", path, head.Version, stateVersion, errNewer)
	}
	if head.Version < 1 {
		return s, fmt.Errorf("%s has no version that this release reads: %d", path, head.Version)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// load reads the state file, all of it or nothing.
func (u *URL) load() (stateFile, map[manifest.Key]entry, error) {
	s, err := read(u.cfg.StateFile)
	if err != nil {
		return s, nil, err
	}
	answers, err := u.verify(s.Signed)
	if err != nil {
		return s, nil, fmt.Errorf("%s: %w", u.cfg.StateFile, err)
	}
	if answers != nil && len(s.Documents) == 0 {
		return s, nil, fmt.Errorf("%s holds nothing that is signed", u.cfg.StateFile)
	}
	inForce := map[manifest.Key]entry{}
	for _, sd := range s.Documents {
		e, err := u.revive(sd, answers)
		if err != nil {
			return s, nil, fmt.Errorf("%s: %w", u.cfg.StateFile, err)
		}
		inForce[e.document.Key] = e
	}
	return s, inForce, nil
}

// verified is a signed answer whose signature holds, with what it says.
type verified struct {
	*signed
	documents map[manifest.Key]manifest.Document
}

// verify checks the signatures of saved answers again: the key may be another by
// now, and the disk is not to be trusted more than the server. Nil means that
// answers are not signed.
func (u *URL) verify(answers []*signed) ([]verified, error) {
	keys, err := u.cfg.Source.keys()
	if keys == nil || err != nil {
		return nil, err
	}
	all := []verified{}
	for _, a := range answers {
		if err := keys.verify(a.Body, a.Signature); err != nil {
			return nil, err
		}
		v := verified{a, map[manifest.Key]manifest.Document{}}
		for _, d := range u.cfg.Parser.Parse("", a.Body).Documents {
			v.documents[d.Key] = d
		}
		all = append(all, v)
	}
	return all, nil
}

// revive makes a document in force of a saved one. Of a signed one, the signed
// answer must say the same.
func (u *URL) revive(sd savedDocument, answers []verified) (entry, error) {
	d, err := u.cfg.Parser.Restore(sd.File, sd.Line, sd.Written)
	if err != nil {
		return entry{}, err
	}
	if answers == nil {
		return entry{document: d}, nil
	}
	if sd.Signed == nil || *sd.Signed < 0 || *sd.Signed >= len(answers) {
		return entry{}, fmt.Errorf("%s is not signed", d.Key)
	}
	from := answers[*sd.Signed]
	if was, ok := from.documents[d.Key]; !ok || !same(was, d) {
		return entry{}, fmt.Errorf("%s is not what was signed", d.Key)
	}
	return entry{document: d, signed: from.signed}, nil
}

// save writes what is in force, if that changed. A failure is logged and tried
// again after the next request.
func (u *URL) save() {
	if u.cfg.StateFile == "" || !u.state.known {
		return
	}
	s := stateFile{Version: stateVersion, Address: u.address, validators: u.known, Documents: []savedDocument{}}
	index := map[*signed]int{}
	for _, d := range u.state.set.Documents {
		sd := savedDocument{File: d.File, Line: d.Line, Written: d.Written}
		if from := u.state.inForce[d.Key].signed; from != nil {
			if _, ok := index[from]; !ok {
				index[from] = len(s.Signed)
				s.Signed = append(s.Signed, from)
			}
			sd.Signed = new(index[from])
		}
		s.Documents = append(s.Documents, sd)
	}
	content, err := json.Marshal(s)
	if err == nil && bytes.Equal(content, u.saved) {
		return
	}
	s.Answered = time.Now().UTC().Truncate(time.Second)
	data, errDated := json.Marshal(s)
	if err = errors.Join(err, errDated); err == nil {
		err = atomicfile.Write(u.cfg.StateFile, data, 0o600)
	}
	if err != nil {
		u.log.Error("save the last good copy of the manifest URL", "err", err)
		return
	}
	u.saved = content
}
