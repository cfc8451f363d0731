package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler reconciles in one of the modes that reconcile.
type reconciler struct {
	client client.Client
	mode   string
	tally  *tally
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	trigger := r.tally.trigger.Load()
	var bench Bench
	if err := r.client.Get(ctx, request.NamespacedName, &bench); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case r.mode == "latency" && bench.Spec.Touched != nil:
		say(started{"started", *bench.Spec.Touched, time.Now().UnixNano()})
	case r.mode == "patch" && bench.Status.Trigger != trigger && trigger != 0:
		patch := fmt.Appendf(nil, `{"status":{"trigger":%d}}`, trigger)
		if err := r.client.Status().Patch(ctx, &bench, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return ctrl.Result{}, err
		}
		r.tally.record(request.Name, trigger)
	case r.mode == "rate" && bench.Spec.Touched != nil && *bench.Spec.Touched > bench.Status.Trigger:
		patch := fmt.Appendf(nil, `{"status":{"trigger":%d}}`, *bench.Spec.Touched)
		return ctrl.Result{}, r.client.Status().Patch(ctx, &bench, client.RawPatch(types.MergePatchType, patch))
	case r.mode == "noop":
		r.tally.record(request.Name, trigger)
	}
	return ctrl.Result{}, nil
}

func addReconciler(mgr ctrl.Manager, args arguments) error {
	tally := newTally(args.objects)
	// A trigger begins before the handler is asked: that maps the object as it was first, and a
	// worker may be done with a key by the time the new one is mapped.
	begin := predicate.NewPredicateFuncs(func(object client.Object) bool {
		number, err := strconv.ParseUint(object.(*corev1.ConfigMap).Data["number"], 10, 64)
		if err != nil {
			return false
		}
		tally.begin(number)
		return true
	})
	all := func(context.Context, client.Object) []reconcile.Request {
		requests := make([]reconcile.Request, args.objects)
		for index := range requests {
			key := types.NamespacedName{Namespace: args.namespace, Name: name(index)}
			requests[index] = reconcile.Request{NamespacedName: key}
		}
		return requests
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("bench").
		For(&Bench{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(all), builder.WithPredicates(begin)).
		WithOptions(controller.Options{MaxConcurrentReconciles: args.workers}).
		Complete(&reconciler{client: mgr.GetClient(), mode: args.mode, tally: tally})
}
