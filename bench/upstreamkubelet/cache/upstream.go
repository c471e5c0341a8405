package main

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

type upstream struct {
	cache  kubecontainer.Cache
	status *kubecontainer.PodStatus
}

func newUpstream() cache { return &upstream{kubecontainer.NewCache(), &kubecontainer.PodStatus{}} }

func (u *upstream) set(uid types.UID, t time.Time) { u.cache.Set(uid, u.status, nil, t) }

func (u *upstream) get(uid types.UID) { _, _ = u.cache.Get(uid) }

func (u *upstream) newerThan(uid types.UID, t time.Time) { _, _ = u.cache.GetNewerThan(uid, t) }

func (u *upstream) updateTime(t time.Time) { u.cache.UpdateTime(t) }
