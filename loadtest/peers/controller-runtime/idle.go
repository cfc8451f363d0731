package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watch makes the cache watch these kinds.
func watch(ctx context.Context, mgr ctrl.Manager, kinds ...client.Object) ([]client.Object, error) {
	for _, kind := range kinds {
		if _, err := mgr.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

func twentyKinds() []client.Object {
	return []client.Object{
		&corev1.ConfigMap{},
		&batchv1.CronJob{},
		&appsv1.DaemonSet{},
		&appsv1.Deployment{},
		&discoveryv1.EndpointSlice{},
		&networkingv1.Ingress{},
		&batchv1.Job{},
		&corev1.LimitRange{},
		&networkingv1.NetworkPolicy{},
		&corev1.PersistentVolumeClaim{},
		&policyv1.PodDisruptionBudget{},
		&corev1.PodTemplate{},
		&appsv1.ReplicaSet{},
		&corev1.ResourceQuota{},
		&rbacv1.Role{},
		&rbacv1.RoleBinding{},
		&corev1.Secret{},
		&corev1.Service{},
		&corev1.ServiceAccount{},
		&appsv1.StatefulSet{},
	}
}
