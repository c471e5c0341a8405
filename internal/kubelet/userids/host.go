package userids

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/kubelet/podfiles"
)

// owner is the user whose subordinate IDs pods get, where the host has it, as
// upstream's kubelet has it.
const owner = "kubelet"

// ofHost returns the IDs that the host has set aside for pods. The program
// getsubids knows them, wherever the host keeps them; without it, or without the
// user, pods may have all but the first perPod.
func ofHost(ctx context.Context, perPod uint32) (podfiles.UserIDs, error) {
	if _, err := user.Lookup(owner); err != nil {
		if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
			return allBut(perPod), nil
		}
		return podfiles.UserIDs{}, err
	}
	program, err := exec.LookPath("getsubids")
	if errors.Is(err, exec.ErrNotFound) {
		return allBut(perPod), nil
	}
	if err != nil {
		return podfiles.UserIDs{}, err
	}
	users, err := exec.CommandContext(ctx, program, owner).Output()
	if err != nil {
		return podfiles.UserIDs{}, fmt.Errorf("ask getsubids for those of user %s: %w", owner, err)
	}
	groups, err := exec.CommandContext(ctx, program, "-g", owner).Output()
	if err != nil {
		return podfiles.UserIDs{}, fmt.Errorf("ask getsubids for the groups of user %s: %w", owner, err)
	}
	if string(users) != string(groups) {
		return podfiles.UserIDs{}, fmt.Errorf("the subordinate users and groups of user %s differ: they must be the same in /etc/subuid and /etc/subgid", owner)
	}
	return parseSubIDs(string(users))
}

// allBut returns all IDs of 32 bits but the first perPod, in slots of perPod.
func allBut(perPod uint32) podfiles.UserIDs {
	return podfiles.UserIDs{First: perPod, Count: -perPod / perPod * perPod}
}

// parseSubIDs reads the one line "0: kubelet FIRST COUNT" of getsubids.
func parseSubIDs(text string) (podfiles.UserIDs, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 1 {
		return podfiles.UserIDs{}, fmt.Errorf("user %s has %d ranges of subordinate IDs: only one is possible", owner, len(lines))
	}
	fields := strings.Fields(lines[0])
	if len(fields) != 4 || fields[1] != owner {
		return podfiles.UserIDs{}, fmt.Errorf("getsubids answers %q", lines[0])
	}
	first, firstErr := strconv.ParseUint(fields[2], 10, 32)
	count, countErr := strconv.ParseUint(fields[3], 10, 32)
	if err := errors.Join(firstErr, countErr); err != nil {
		return podfiles.UserIDs{}, fmt.Errorf("getsubids answers %q: %w", lines[0], err)
	}
	return podfiles.UserIDs{First: uint32(first), Count: uint32(count)}, nil
}
