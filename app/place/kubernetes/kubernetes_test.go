package kubernetes_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/app/place/kubernetes"
	"millrace/internal/needs"
	"millrace/internal/secure"
	"millrace/internal/secure/issue"
	"millrace/orchestrator/placer"
	"millrace/orchestrator/placer/placertest"
)

const (
	namespace = "train"
	pods      = "/api/v1/namespaces/" + namespace + "/pods"
	sets      = "/apis/apps/v1/namespaces/" + namespace + "/statefulsets"
	nodeCount = 8
)

// TestKubernetes installs deploy/kubernetes in a real Kubernetes whose nodes kwok plays, and scales the run.
func TestKubernetes(t *testing.T) {
	var nodes []string
	for i := range nodeCount {
		nodes = append(nodes, fmt.Sprintf("node-%d", i))
	}
	c := startCluster(t, nodes...)
	c.prepareNamespace()
	overlay := c.overlay()
	t.Run("the manifests have no unknown field and break no rule", func(t *testing.T) { c.in(t).dryRun(overlay) })
	c.must("apply", "-k", overlay)
	t.Run("every pod starts and the job ends", func(t *testing.T) { c.in(t).starts() })
	t.Run("a pod with more rights is refused", func(t *testing.T) { c.in(t).refusesPods() })
	p := c.placer()
	t.Run("the placer may do nothing else", func(t *testing.T) { c.in(t).rights() })
	t.Run("contract", func(t *testing.T) {
		placertest.Run(t, func(t *testing.T) placertest.Engine { return c.in(t).engine(p) })
	})
	t.Run("a shadow is never beside a loader", func(t *testing.T) { c.in(t).apart(p) })
	t.Run("pods without a node are pending", func(t *testing.T) { c.in(t).crowd(nodes[:4]) })
	t.Run("a second eviction waits", func(t *testing.T) { c.in(t).evicts(nodes) })
	t.Run("without its Role the placer names it", func(t *testing.T) { c.in(t).unbound(p) })
	t.Run("the example of the page", func(t *testing.T) { c.in(t).page() })
	t.Run("a run with real processes", func(t *testing.T) { c.in(t).live() })
}

// in returns the cluster for a part of the test.
func (c *cluster) in(t *testing.T) *cluster {
	part := *c
	part.t = t
	return &part
}

// prepareNamespace makes what the manifests leave to their user: the namespace, the claim of the data, and the
// certificates.
func (c *cluster) prepareNamespace() {
	c.t.Helper()
	apply := func(objects string) {
		if _, err := c.kubectl(objects, "apply", "-f", "-"); err != nil {
			c.t.Fatal(err)
		}
	}
	apply(`
{apiVersion: v1, kind: Namespace, metadata: {name: train, labels: {pod-security.kubernetes.io/enforce: restricted}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec:
  capacity: {storage: 1Ti}
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  nfs: {server: 10.0.0.1, path: /data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: train}
spec:
  accessModes: [ReadOnlyMany]
  storageClassName: ""
  volumeName: data
  resources: {requests: {storage: 1Ti}}
`)
	for _, role := range []secure.Role{secure.Orchestrator, secure.Loader, secure.Sidecar} {
		made, err := issue.Issue(issue.Request{Dir: c.file("issued"), Roles: []secure.Role{role}, Days: 1,
			Hosts: []string{"*.millrace.train.svc.cluster.local"}, Now: time.Now()})
		if err != nil {
			c.t.Fatal(err)
		}
		c.must("create", "secret", "generic", "-n", namespace, "millrace-"+string(role)+"-tls",
			"--from-file=ca.crt="+made.CA, "--from-file=tls.crt="+made.Certificates[0].Cert,
			"--from-file=tls.key="+made.Certificates[0].Key)
	}
	// The controller makes the account that the pods without a token have.
	c.await("service account default", func() error {
		_, err := c.request(admin, http.MethodGet, "/api/v1/namespaces/train/serviceaccounts/default", "", nil)
		return err
	})
}

// overlay writes a kustomization that has deploy/kubernetes as its base.
func (c *cluster) overlay() string {
	c.t.Helper()
	if err := os.CopyFS(c.file("base"), os.DirFS("../../../deploy/kubernetes")); err != nil {
		c.t.Fatal(err)
	}
	dir := c.file("overlay")
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" +
		"namespace: train\nresources: [../base]\nimages: [{name: trainer, newName: registry.example/trainer}]\n"
	if err := os.Mkdir(dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return dir
}

// dryRun lets the server validate the manifests. A field that it does not know is an error.
func (c *cluster) dryRun(overlay string) {
	dryRun := []string{"apply", "--dry-run=server", "--validate=strict", "-f", "-"}
	rendered := c.must("kustomize", overlay)
	out, err := c.kubectl(rendered, dryRun...)
	if err != nil || strings.Contains(out, "Warning") {
		c.t.Errorf("%v\n%s", err, out)
	}
	unknown := strings.Replace(rendered, "podManagementPolicy:", "podManagmentPolicy:", 1)
	if _, err := c.kubectl(unknown, dryRun...); err == nil || !strings.Contains(err.Error(), "podManagmentPolicy") {
		c.t.Errorf("an unknown field: %v", err)
	}
	weak := strings.ReplaceAll(rendered, "runAsNonRoot: true", "runAsNonRoot: false")
	if out, err := c.kubectl(weak, dryRun...); err == nil && !strings.Contains(out, "would violate PodSecurity") {
		c.t.Errorf("pods as root: %v\n%s", err, out)
	}
}

// page renders the kustomization of docs/cluster.md.
func (c *cluster) page() {
	text, err := os.ReadFile("../../../docs/cluster.md")
	if err != nil {
		c.t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "# kustomization.yaml\n")
	example, _, _ = strings.Cut(example, "```")
	dir := c.file("page")
	base := filepath.Join(dir, "deploy", "kubernetes")
	if err := os.CopyFS(base, os.DirFS("../../../deploy/kubernetes")); err != nil {
		c.t.Fatal(err)
	}
	for name, content := range map[string]string{
		"kustomization.yaml": example, "mixture.yaml": "version: 1\n", "cluster.yaml": "name: another\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	rendered := c.must("kustomize", dir)
	for _, line := range []string{"  completions: 8\n", "        - --nnodes=8\n", "  WORLD_SIZE: \"64\"\n",
		"name: another\n", "  namespace: train\n", "image: registry.example/millrace:latest\n"} {
		if !strings.Contains(rendered, line) {
			c.t.Errorf("the kustomization of docs/cluster.md does not give %q", line)
		}
	}
	rendered = strings.ReplaceAll(rendered, "namespace: train", "namespace: default") // train has another job
	if out, err := c.kubectl(rendered, "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
		c.t.Errorf("%v\n%s", err, out)
	}
}

// refusesPods checks that the namespace enforces the rules, which the pods of the manifests pass.
func (c *cluster) refusesPods() {
	_, err := c.kubectl("", "run", "-n", namespace, "bad", "--image=bad")
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		c.t.Error(err)
	}
}

// running returns the nodes of the ready pods of a component.
func (c *cluster) running(component string) map[string]string {
	c.t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
			Status   struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	c.get(pods+"?labelSelector=app.kubernetes.io/component="+component, &list)
	out := map[string]string{}
	for _, i := range list.Items {
		for _, condition := range i.Status.Conditions {
			if condition.Type == "Ready" && condition.Status == "True" {
				out[i.Metadata.Name] = i.Spec.NodeName
			}
		}
	}
	return out
}

func (c *cluster) starts() {
	for component, n := range map[string]int{"orchestrator": 2, "loader": 1, "shadow": 1} {
		c.await(component, func() error {
			if got := c.running(component); len(got) != n {
				return fmt.Errorf("%v run, want %d", got, n)
			}
			return nil
		})
	}
	where := c.running("orchestrator")
	if where["orchestrator-0"] == where["orchestrator-1"] {
		c.t.Errorf("the orchestrators share a node: %v", where)
	}
	c.must("wait", "-n", namespace, "--for=condition=complete", "--timeout=120s", "job/trainer")
	var list struct {
		Items []struct {
			Spec struct {
				Hostname, Subdomain string
				InitContainers      []struct {
					RestartPolicy string
					Env           []struct{ Name string }
				}
			}
		}
	}
	c.get(pods+"?labelSelector=app.kubernetes.io/component=trainer", &list)
	var hosts []string
	for _, i := range list.Items {
		hosts = append(hosts, i.Spec.Hostname+"."+i.Spec.Subdomain)
		sidecar := i.Spec.InitContainers[0]
		if sidecar.RestartPolicy != "Always" || !slices.ContainsFunc(sidecar.Env,
			func(e struct{ Name string }) bool { return e.Name == "JOB_COMPLETION_INDEX" }) {
			c.t.Errorf("the sidecar is %+v", sidecar)
		}
	}
	slices.Sort(hosts)
	if want := []string{"trainer-0.millrace", "trainer-1.millrace"}; !slices.Equal(hosts, want) {
		c.t.Errorf("the hosts of the job are %v, want %v", hosts, want)
	}
}

// placer returns a placer with a token of the shipped service account.
func (c *cluster) placer() *kubernetes.Placer {
	token := c.must("create", "token", "-n", namespace, "millrace-placer")
	if err := os.WriteFile(c.file("token"), []byte(token), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return c.newPlacer("token", "loader", "shadow")
}

// newPlacer returns a placer with a token of a file, for roles whose StatefulSets have their names.
func (c *cluster) newPlacer(token string, roles ...string) *kubernetes.Placer {
	named := map[string]string{}
	for _, role := range roles {
		named[role] = role
	}
	p, err := kubernetes.New(kubernetes.Config{Server: c.server, Namespace: namespace, Token: c.file(token), CA: c.ca,
		Sets: named})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// rights compares all rights of the service account with those that it needs, and tries others.
func (c *cluster) rights() {
	token, err := os.ReadFile(c.file("token"))
	if err != nil {
		c.t.Fatal(err)
	}
	try := func(verb, path, kind, body string) error {
		_, err := c.request(string(token), verb, path, kind, []byte(body))
		return err
	}
	answer, err := c.request(string(token), http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		"application/json", []byte(`{"spec":{"namespace":"train"}}`))
	if err != nil {
		c.t.Fatal(err)
	}
	var review struct {
		Status struct {
			Incomplete    bool
			ResourceRules []struct{ Verbs, APIGroups, Resources, ResourceNames []string }
		}
	}
	if err := json.Unmarshal(answer, &review); err != nil || review.Status.Incomplete {
		c.t.Fatalf("%v: %s", err, answer)
	}
	got := map[string]bool{}
	for _, r := range review.Status.ResourceRules {
		// Everybody may ask for his own rights and his own name.
		if !slices.Equal(r.APIGroups, []string{"authorization.k8s.io"}) &&
			!slices.Equal(r.APIGroups, []string{"authentication.k8s.io"}) {
			got[fmt.Sprint(r.Verbs, r.APIGroups, r.Resources, r.ResourceNames)] = true
		}
	}
	want := map[string]bool{"[get] [apps] [statefulsets] [loader shadow]": true,
		"[patch] [apps] [statefulsets/scale] [loader shadow]": true, "[list] [] [pods] []": true}
	if !maps.Equal(got, want) {
		c.t.Errorf("the placer has the rights %v, want %v", got, want)
	}
	const merge = "application/merge-patch+json"
	if err := try(http.MethodPatch, sets+"/loader/scale", merge, `{"spec":{"replicas":1}}`); err != nil {
		c.t.Error(err)
	}
	for _, other := range [][4]string{
		{http.MethodPatch, sets + "/loader", merge, `{"spec":{"replicas":9}}`},
		{http.MethodPatch, sets + "/orchestrator/scale", merge, `{"spec":{"replicas":0}}`},
		{http.MethodGet, sets + "/orchestrator", "", ""},
		{http.MethodGet, sets, "", ""},
		{http.MethodDelete, sets + "/loader", "", ""},
		{http.MethodGet, pods + "/loader-0", "", ""},
		{http.MethodDelete, pods + "/loader-0", "", ""},
		{http.MethodGet, pods + "/loader-0/log", "", ""},
		{http.MethodPost, pods + "/loader-0/exec?command=id", "", ""},
		{http.MethodPost, pods, "application/json", `{"metadata":{"name":"x"}}`},
		{http.MethodGet, "/api/v1/namespaces/train/secrets/millrace-loader-tls", "", ""},
		{http.MethodGet, "/api/v1/namespaces/train/configmaps", "", ""},
		{http.MethodGet, "/api/v1/namespaces/kube-system/pods", "", ""},
		{http.MethodGet, "/api/v1/nodes", "", ""},
		{http.MethodPost, "/api/v1/namespaces/train/serviceaccounts/default/token", "application/json", `{"spec":{}}`},
	} {
		if err := try(other[0], other[1], other[2], other[3]); err == nil || !strings.Contains(err.Error(), "403") {
			c.t.Errorf("%s %s: %v, want Forbidden", other[0], other[1], err)
		}
	}
}

// engine returns what the contract suite needs. A pod is a process, and its uid is the identity.
func (c *cluster) engine(p *kubernetes.Placer) placertest.Engine {
	asked := c.watchDeletions()
	return placertest.Engine{
		Placer: p, Name: "kubernetes", Role: "loader", Beside: "shadow", Hosts: nodeCount, Patience: patience,
		Spread: &placer.Wanted{Role: "shadow", Count: 2, Apart: "loader"},
		Identity: func(name string) (string, error) {
			answer, err := c.request(admin, http.MethodGet, pods+"/"+name, "", nil)
			var pod struct{ Metadata struct{ UID string } }
			if err == nil {
				err = json.Unmarshal(answer, &pod)
			}
			return pod.Metadata.UID, err
		},
		Kill: func(name string) error {
			_, err := c.request(admin, http.MethodDelete, pods+"/"+name+"?gracePeriodSeconds=0", "", nil)
			return err
		},
		Asked: asked,
	}
}

// watchDeletions notes the pods that are asked to end: with a grace period, so that the kubelet sends SIGTERM.
func (c *cluster) watchDeletions() func(uid string) bool {
	ctx, cancel := context.WithCancel(context.Background())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+pods+"?watch=1", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+admin)
	response, err := c.client().Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	var mu sync.Mutex
	asked := map[string]bool{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var event struct {
				Object struct {
					Metadata struct {
						UID, DeletionTimestamp     string
						DeletionGracePeriodSeconds int
					}
				}
			}
			if json.Unmarshal(lines.Bytes(), &event) == nil && event.Object.Metadata.DeletionGracePeriodSeconds > 0 {
				mu.Lock()
				asked[event.Object.Metadata.UID] = true
				mu.Unlock()
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-ended
		response.Body.Close()
	})
	return func(uid string) bool {
		mu.Lock()
		defer mu.Unlock()
		return asked[uid]
	}
}

// apart scales both roles against each other. At no time is a shadow on a node of a loader.
func (c *cluster) apart(p *kubernetes.Placer) {
	for _, n := range [][2]int{{1, 1}, {4, 2}, {6, 2}, {1, 4}, {4, 1}} {
		goal := placer.Desired{Roles: []placer.Wanted{{Role: "loader", Count: n[0]},
			{Role: "shadow", Count: n[1], Apart: "loader"}}}
		if err := p.Apply(c.t.Context(), goal); err != nil {
			c.t.Fatal(err)
		}
		c.await(fmt.Sprint(n), func() error {
			c.noneBeside()
			all, err := p.Observe(c.t.Context())
			running := map[string]int{}
			for _, i := range all {
				if i.State == placer.Running {
					running[i.Role]++
				}
			}
			if running["loader"] != n[0] || running["shadow"] != n[1] || len(all) != n[0]+n[1] {
				return fmt.Errorf("%v, %v", all, err)
			}
			return nil
		})
	}
}

// noneBeside looks at all pods at one time, also at those that end.
func (c *cluster) noneBeside() {
	var list struct {
		Items []struct {
			Metadata struct {
				Name   string
				Labels map[string]string
			}
			Spec struct{ NodeName string }
		}
	}
	c.get(pods+"?labelSelector=app.kubernetes.io/component+in+(loader,shadow)", &list)
	on := map[string]string{}
	for _, i := range list.Items {
		role, node := i.Metadata.Labels["app.kubernetes.io/component"], i.Spec.NodeName
		if node == "" {
			continue
		}
		if other, ok := on[node]; ok && other != role {
			c.t.Errorf("%s is on %s beside a %s", i.Metadata.Name, node, other)
		}
		on[node] = role
	}
}

// crowd wants eight pods on four nodes, each on a node of its own.
func (c *cluster) crowd(nodes []string) {
	for _, node := range nodes {
		c.must("label", "node", node, "crowd=yes")
	}
	_, err := c.kubectl(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: crowd, namespace: train}
spec:
  replicas: 0
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: crowd}}
  template:
    metadata: {labels: {app: crowd}}
    spec:
      nodeSelector: {crowd: "yes"}
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: crowd}}}
      securityContext: {runAsNonRoot: true, runAsUser: 1, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: crowd
          image: crowd
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`, "apply", "-f", "-")
	if err == nil {
		err = os.WriteFile(c.file("admin-token"), []byte(admin), 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	p := c.newPlacer("admin-token", "crowd")
	goal := placer.Desired{Roles: []placer.Wanted{{Role: "crowd", Count: 8, Apart: "crowd"}}}
	if err := p.Apply(c.t.Context(), goal); err != nil {
		c.t.Fatal(err)
	}
	c.await("four of eight", func() error {
		all, err := p.Observe(c.t.Context())
		states := map[placer.State]int{}
		for _, i := range all {
			states[i.State]++
		}
		if want := map[placer.State]int{placer.Running: 4, placer.Pending: 4}; err == nil && !maps.Equal(states, want) {
			err = fmt.Errorf("%v", all)
		}
		return err
	})
	c.must("delete", "statefulset", "-n", namespace, "crowd")
}

// evicts one orchestrator, whose pod finds no node then. The second one must stay.
func (c *cluster) evicts(nodes []string) {
	evict := func(pod string) error {
		body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}}`, pod)
		_, err := c.request(admin, http.MethodPost, pods+"/"+pod+"/eviction", "application/json", []byte(body))
		return err
	}
	c.must(append([]string{"cordon"}, nodes...)...)
	c.await("eviction", func() error { return evict("orchestrator-0") }) // the controller counts healthy pods first
	c.await("an orchestrator less", func() error {
		if got := c.running("orchestrator"); len(got) != 1 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if err := evict("orchestrator-1"); err == nil || !strings.Contains(err.Error(), "disruption budget") {
		c.t.Errorf("the second eviction: %v", err)
	}
	c.must(append([]string{"uncordon"}, nodes...)...)
	c.await("both orchestrators", func() error {
		if got := c.running("orchestrator"); len(got) != 2 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

// unbound takes the rights away. The error says which Role is missing.
func (c *cluster) unbound(p *kubernetes.Placer) {
	c.must("delete", "rolebinding", "-n", namespace, "millrace-placer")
	c.await("Forbidden", func() error {
		err := p.Apply(c.t.Context(), placer.Desired{Roles: []placer.Wanted{{Role: "loader", Count: 2}}})
		if err == nil || !strings.Contains(err.Error(), "Forbidden") ||
			!strings.HasSuffix(err.Error(), "bind the Role of deploy/kubernetes/placer.yaml to the service account of "+
				"the orchestrators") {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
}

// live runs e2e/test_k8s.py in this cluster.
func (c *cluster) live() {
	python := os.Getenv("MILLRACE_E2E_PYTHON")
	needs.Require(c.t, "MILLRACE_E2E_PYTHON")
	cmd := exec.Command(python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "e2e/test_k8s.py")
	cmd.Dir = "../../.."
	cmd.Env = append(os.Environ(), "MILLRACE_KUBECONFIG="+c.file("kubeconfig"))
	out, err := cmd.CombinedOutput()
	c.t.Logf("%s", out)
	if err != nil {
		c.t.Error(err)
	}
}
