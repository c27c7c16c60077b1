"""A file's lines become to-dos of a project, then the file goes."""

import json

SPLIT, DIFFICULTY, APPS = "dev", 2, ("file_system", "todoist")
INSTRUCTION = "Add every line of the file {path} as a task to my Todoist project '{project}', then delete the file."
TASKS = [
    {"path": "~/lists/kitchen.txt", "project": "Household", "lines": ["Descale the kettle", "Sharpen the knives"]},
    {"path": "~/lists/bike.txt", "project": "Garage", "lines": ["Oil the chain", "Patch the tube", "Fix the bell"]},
    {"path": "~/lists/balcony.txt", "project": "Plants", "lines": ["Repot the basil", "Buy soil", "Trim the ivy"]},
]
TESTS = {
    "The task was completed, without an answer.": False,
    "Each line is a task of the project, and no other task was added.": False,
    "The file is gone.": False,
    "Nothing else was changed.": True,
}


def answer(task):
    return None


def prepare(apis, owner, friends, task):
    todoist, files = owner.tokens["todoist"], owner.tokens["file_system"]
    for name in ("Household", "Garage", "Plants"):
        project = apis.todoist.create_project(name=name, access_token=todoist)["project_id"]
        apis.todoist.create_task(project_id=project, title=f"Think about {name.lower()}", access_token=todoist)
    apis.file_system.create_directory(directory_path="~/lists", recursive=True, access_token=files)
    apis.file_system.create_file(file_path=task["path"], content="\n".join(task["lines"]), access_token=files)
    apis.file_system.create_file(file_path="~/lists/old.txt", content="Paint the fence", access_token=files)


def turns(task):
    return [
        (
            "I read the file.",
            f"text = apis.file_system.show_file(file_path={task['path']!r}, access_token=file_system)['content']\n"
            "print(text)",
        ),
        (
            "I find the project.",
            f"found = apis.todoist.show_projects(query={task['project']!r}, access_token=todoist)\n"
            f"project = next(p for p in found if p['name'] == {task['project']!r})\nprint(project)",
        ),
        (
            "I add the lines as tasks.",
            "for line in text.splitlines():\n"
            "    print(apis.todoist.create_task(project_id=project['project_id'], title=line, access_token=todoist))",
        ),
        (
            "I delete the file.",
            f"print(apis.file_system.delete_file(file_path={task['path']!r}, access_token=file_system))",
        ),
    ]


def evaluate(test, public_data, private_data, main_user, models, ground_truth_answer):
    completed, tasks, file, rest = list(TESTS)
    with test(completed):
        test.answer(json.loads(models.end.supervisor.Task.first().answer), ground_truth_answer)
    added, updated, removed = models.changed_records("todoist.Task")
    with test(tasks):
        assert sorted(task.title for task in added) == sorted(private_data.lines)
        projects = {project.id: project.name for project in models.end.todoist.Project.all()}
        assert {projects[task.project_id] for task in added} == {private_data.project}
    _, _, gone = models.changed_records("file_system.File")
    name = private_data.path.split("/")[-1]
    with test(file):
        assert [path.path.split("/")[-1] for path in gone] == [name]
    with test(rest):
        allowed = {"todoist.Task", "file_system.File", "file_system.Directory"}
        assert models.changed_model_names() <= allowed
        assert not removed and not updated
        assert not models.changed_records("file_system.File")[0]
