package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Bench is the kind that is reconciled: a schedule of replicas for each hour, about 2.3 KB.
type Bench struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              BenchSpec   `json:"spec"`
	Status            BenchStatus `json:"status,omitempty"`
}

type BenchSpec struct {
	Container        Container `json:"container"`
	DefaultReplica   int32     `json:"defaultReplica"`
	SchedulingConfig []Slot    `json:"schedulingConfig"`
	Touched          *uint64   `json:"touched,omitempty"`
}

type Container struct {
	Image string `json:"image"`
	Port  int32  `json:"port"`
}

type Slot struct {
	StartTime int32 `json:"startTime"`
	EndTime   int32 `json:"endTime"`
	Replica   int32 `json:"replica"`
}

type BenchStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	Replicas   int32              `json:"replicas,omitempty"`
	Trigger    uint64             `json:"trigger,omitempty"`
}

type BenchList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Bench `json:"items"`
}

func addBench(scheme *runtime.Scheme) {
	version := schema.GroupVersion{Group: "bench.leasehold.dev", Version: "v1"}
	scheme.AddKnownTypes(version, &Bench{}, &BenchList{})
	metav1.AddToGroupVersion(scheme, version)
}

// DeepCopyInto is what controller-gen would write.
func (in *Bench) DeepCopyInto(out *Bench) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Spec.SchedulingConfig != nil {
		out.Spec.SchedulingConfig = make([]Slot, len(in.Spec.SchedulingConfig))
		copy(out.Spec.SchedulingConfig, in.Spec.SchedulingConfig)
	}
	if in.Spec.Touched != nil {
		touched := *in.Spec.Touched
		out.Spec.Touched = &touched
	}
	if in.Status.Conditions != nil {
		out.Status.Conditions = make([]metav1.Condition, len(in.Status.Conditions))
		for i := range in.Status.Conditions {
			in.Status.Conditions[i].DeepCopyInto(&out.Status.Conditions[i])
		}
	}
}

// DeepCopyObject implements runtime.Object.
func (in *Bench) DeepCopyObject() runtime.Object {
	out := new(Bench)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject implements runtime.Object.
func (in *BenchList) DeepCopyObject() runtime.Object {
	out := &BenchList{TypeMeta: in.TypeMeta}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	if in.Items != nil {
		out.Items = make([]Bench, len(in.Items))
		for i := range in.Items {
			in.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
	return out
}
