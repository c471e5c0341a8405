package main

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-dev/holdfast/internal/kubelet/observed"
)

type ours struct {
	cache  *observed.Cache
	status *observed.Status
}

func newOurs() cache { return &ours{observed.NewCache(), &observed.Status{}} }

func (o *ours) set(uid types.UID, t time.Time) { o.cache.Set(uid, o.status, nil, t) }

func (o *ours) get(uid types.UID) { _, _ = o.cache.Get(uid) }

func (o *ours) newerThan(uid types.UID, t time.Time) { _, _ = o.cache.GetNewerThan(ctx, uid, t) }

func (o *ours) updateTime(t time.Time) { o.cache.UpdateTime(t) }
